#include "model/dispatch/spot/refused_plans.h"

#include <algorithm>
#include <atomic>
#include <functional>
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
std::atomic<uint64_t> g_hash{0};     // of g_refused, in any order

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

void RefusePlan(const std::string& call, const std::string& plan, const std::string& reason) {
  const RefusedPlan refused{call, plan, reason};
  {
    const std::lock_guard<std::mutex> lock(g_mutex);
    if (std::any_of(g_refused.begin(), g_refused.end(),
                    [&](const RefusedPlan& other) { return IsSame(refused, other); }))
      return;
    g_refused.push_back(refused);
    const std::hash<std::string> hash;
    g_hash.fetch_add(hash(refused.call + '\n' + refused.plan), std::memory_order_release);
  }
  DropPlansNamed(refused.plan);
  NextPlanRevision();
}

uint64_t RefusedPlansHash() { return g_hash.load(std::memory_order_acquire); }

void ForgetRefusedPlans() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_refused.clear();
  g_hash.store(0);
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
  if (RefusedPlansHash() == 0) return "";
  const RefusedPlan wanted{CallText(spec), plan.Describe(), {}};
  const std::lock_guard<std::mutex> lock(g_mutex);
  const auto found =
      std::find_if(g_refused.begin(), g_refused.end(),
                   [&](const RefusedPlan& refused) { return IsSame(refused, wanted); });
  return found == g_refused.end() ? "" : "a spot check found it wrong: " + found->reason;
}

}  // namespace spot
}  // namespace singa
