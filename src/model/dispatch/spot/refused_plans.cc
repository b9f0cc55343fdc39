#include "model/dispatch/spot/refused_plans.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "core/graph/plan_revision.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/plan_cache.h"
#include "singa/core/environment.h"
#include "singa/dispatch/spot_check.h"

namespace singa {
namespace {

std::mutex g_mutex;
std::vector<RefusedPlan> g_refused;  // guarded by g_mutex
std::atomic<bool> g_has_refused{false};

std::atomic<bool>& Enabled() {
  static std::atomic<bool> enabled = EnvironmentFlag("SINGA_SPOT_CHECKS");
  return enabled;
}

bool IsSame(const RefusedPlan& a, const RefusedPlan& b) {
  return a.call == b.call && a.plan == b.plan;
}

}  // namespace

void SetSpotChecks(bool enable) { Enabled().store(enable); }
bool SpotChecks() { return Enabled().load(std::memory_order_relaxed); }

std::vector<RefusedPlan> GetRefusedPlans() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  return g_refused;
}

void RefusePlan(const RefusedPlan& refused) {
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (std::any_of(g_refused.begin(), g_refused.end(),
                    [&](const RefusedPlan& other) { return IsSame(refused, other); }))
      return;
    g_refused.push_back(refused);
    g_has_refused.store(true, std::memory_order_release);
  }
  DropPlansNamed(refused.plan);
  NextPlanRevision();
}

void ForgetRefusedPlans() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_refused.clear();
  g_has_refused.store(false);
}

namespace spot {

std::string CallText(const OpRef& spec) {
  opcheck::Fields fields;
  opcheck::FieldWriter writer(&fields);
  spec.op_type().write(spec.spec, writer);
  std::string text = spec.op();
  for (const auto& [name, value] : fields) text += " " + name + "=" + value;
  return text;
}

std::string ReasonAgainst(const OpRef& spec, const Plan& plan) {
  if (!g_has_refused.load(std::memory_order_acquire)) return "";
  const RefusedPlan wanted{CallText(spec), plan.Describe(), {}};
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto found =
      std::find_if(g_refused.begin(), g_refused.end(),
                   [&](const RefusedPlan& refused) { return IsSame(refused, wanted); });
  return found == g_refused.end() ? "" : "a spot check found it wrong: " + found->reason;
}

}  // namespace spot
}  // namespace singa
