#include "model/dispatch/spot/spot_check.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/graph/node_observer.h"
#include "core/graph/recorded_step.h"
#include "core/tensor/shares_memory.h"
#include "model/dispatch/checked_run.h"
#include "model/dispatch/dispatch.h"
#include "model/dispatch/kernel.h"
#include "model/dispatch/opcheck/opcheck.h"
#include "model/dispatch/opcheck/replay_file.h"
#include "model/dispatch/spot/refused_plans.h"
#include "model/dispatch/spot/sampler.h"
#include "singa/core/error.h"
#include "singa/dispatch/spot_check.h"

namespace singa::spot {
namespace {

constexpr uint32_t kEnough = 4;  ///< checked runs that have said something

/// Products that a check may compute: a small part of what the call computes.
int64_t Budget(const OpRef& spec, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  constexpr int64_t kMost = int64_t{1} << 20, kShare = 100000, kShareOfElements = 500;
  const auto multiply_adds = spec.op_type().multiply_adds;
  int64_t work = multiply_adds ? multiply_adds(spec.spec) / kShare : 0;
  if (work == 0)
    for (const auto tensors : {inputs, outputs})
      for (const Tensor& t : tensors) work = std::max(work, t.size() / kShareOfElements);
  return std::min(work, kMost);
}

/// Of the call, so that calls of different shapes have different places.
uint64_t OutputsHash(std::span<const Tensor> outputs) {
  uint64_t hash = 0;
  for (const Tensor& t : outputs)
    for (const int64_t length : t.shape()) hash = hash * 31 + static_cast<uint64_t>(length);
  return hash;
}

Finding Sample(const OpRef& spec, const Plan& plan, std::span<const Tensor> inputs,
               std::span<const Tensor> outputs, uint32_t run, uint32_t turn) {
  const uint64_t seed = run * 0x9e3779b97f4a7c15 ^ OutputsHash(outputs);
  Sampler sampler(inputs, outputs, Budget(spec, inputs, outputs), turn, seed, plan);
  spec.op_type().sample(spec.spec, sampler);
  return sampler.finding();
}

bool IsReference(const Plan& plan) { return std::strcmp(plan.implementation(), kReference) == 0; }

/// Writes results to the outputs, but for those that are empty. Returns false where there are none.
bool Write(std::span<const Tensor> results, std::span<const Tensor> outputs) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i].empty()) continue;
    const DevicePtr device = outputs[i].device();
    const Tensor result = results[i].ToDevice(device);
    if (const LayoutPtr layout = outputs[i].layout())
      device->CopyBytes(outputs[i].block()->data(), result.ToLayout(layout).block()->data(),
                        layout->bytes());
    else
      Tensor(outputs[i]).CopyFrom(result);
  }
  return !results.empty();
}

/// A copy in its own memory, in the layout of `t`: to reorder would take as much memory again.
Tensor Copied(const Tensor& t) {
  if (!t.layout()) return t.Clone();
  const Tensor copy(t.device(), t.layout());
  t.device()->CopyBytes(copy.block()->data(), t.block()->data(), t.layout()->bytes());
  return copy;
}

/// The plan that the next call takes; null where there is none.
PlanPtr NextPlan(const OpRef& spec, const DevicePtr& device) {
  try {
    return FindPlan(*device, spec, PlanOptions().Unmeasured());
  } catch (const Unavailable&) {
    return nullptr;
  }
}

/// Refuses a plan, and says so.
void Refuse(const OpRef& spec, const Plan& plan, const opcheck::Call& call,
            std::span<const Tensor> outputs, const std::string& difference) {
  plan.watch().refused.store(true, std::memory_order_relaxed);
  std::string again;
  if (spec.op_type().check_call) {  // else a file of it cannot be read
    std::vector<Tensor> found;
    for (const Tensor& t : outputs)
      found.push_back(t.empty() ? t : t.Plain().ToDevice(DefaultDevice()));
    again = " Run again: python -m singa replay " +
            opcheck::WriteReplayFile(call, found, opcheck::ReplayDirectory());
  }
  std::fprintf(stderr,
               "singa: [%s] %s computed a wrong result: %s. It is refused for %s from now on.%s\n",
               spec.op(), plan.Describe().c_str(), difference.c_str(), CallText(spec).c_str(),
               again.c_str());
  RefusePlan(CallText(spec), plan.Describe(), difference);
}

}  // namespace

bool IsTurn(uint32_t run) {
  return run == 2 || (std::has_single_bit(run) && std::countr_zero(run) % 2 == 0);
}

static bool IsDue(const Plan& plan) {
  if (!SpotChecks() || opcheck::IsOn() || opcheck::IsPaused()) return false;
  if (RecordedStep::Current() || IsUnobserved()) return false;  // when it runs
  Plan::Watch& watch = plan.watch();
  return IsTurn(watch.runs.fetch_add(1, std::memory_order_relaxed) + 1) ||
         watch.refused.load(std::memory_order_relaxed);
}

/// Whether calls of this type are sampled. If not, the plan is not watched any more.
static bool IsSampled(const OpType* type, const Plan& plan) {
  if (type && type->sample) return true;
  plan.watch().on.store(false, std::memory_order_relaxed);
  return false;
}

bool IsDue(const OpRef& spec, const Plan& plan) {
  return IsDue(plan) && IsSampled(&spec.op_type(), plan);
}

void RunChecked(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Scalars& scalars, const std::function<void()>& execute) {
  // Operands that the call overwrites.
  std::vector<Tensor> before(inputs.begin(), inputs.end());
  {
    const opcheck::Pause pause;
    for (Tensor& input : before)
      if (std::any_of(outputs.begin(), outputs.end(),
                      [&](const Tensor& output) { return SharesMemory(input, output); }))
        input = Copied(input);
  }
  execute();

  const opcheck::Pause pause;
  Plan::Watch& watch = plan->watch();
  const uint32_t run = watch.runs.load(std::memory_order_relaxed);
  const uint32_t turn = watch.counted.load(std::memory_order_relaxed);
  const Finding found = Sample(spec, *plan, before, outputs, run, turn);
  const bool wrong = found.ratio > 1, refused = watch.refused.load(std::memory_order_relaxed);
  if (!wrong && !refused) {
    if (found.counted > 0 && watch.counted.fetch_add(1, std::memory_order_relaxed) + 1 >= kEnough)
      watch.on.store(false, std::memory_order_relaxed);
    return;
  }
  const auto call_of = [&](const Plan& of) {
    return opcheck::CallOf(spec, device, of, before, inputs, outputs, scalars);
  };
  if (!refused) Refuse(spec, *plan, call_of(*plan), outputs, found.text);
  // The following implementations, until one is right.
  for (;;) {
    const PlanPtr next = NextPlan(spec, device);
    const bool is_last = !next || IsReference(*next) || next->watch().refused.load();
    const opcheck::Call call = call_of(is_last ? *plan : *next);
    if (!Write(is_last ? opcheck::ReferenceResults(spec, device, call)
                       : opcheck::ResultsOf(spec, device, next, call, before),
               outputs))
      break;
    const Finding again = Sample(spec, is_last ? *plan : *next, before, outputs, run, turn);
    if (again.ratio <= 1) return;
    if (is_last) break;
    Refuse(spec, *next, call, outputs, again.text);
  }
  throw std::runtime_error(detail::Message(spec.op(), plan->Describe(), ": ",
                                           ReasonAgainst(spec, *plan),
                                           ", and no other implementation computes this call"));
}

bool RunNode(const Node& node, const std::function<void()>& run) {
  if (!IsDue(*node.plan)) return false;
  const OpType* type = node.spec_type ? FindOpType(node.spec_type->id->name()) : nullptr;
  const auto written = std::find_if(node.outputs.begin(), node.outputs.end(),
                                    [](const Tensor& t) { return !t.empty(); });
  if (written == node.outputs.end()) type = nullptr;
  if (!IsSampled(type, *node.plan)) return false;
  RunChecked(OpRef(node.spec.get(), *type), written->device(), node.plan, node.inputs, node.outputs,
             node.scalars, run);
  return true;
}

}  // namespace singa::spot
