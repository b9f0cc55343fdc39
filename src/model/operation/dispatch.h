#pragma once

// From a Spec to a result: signature → plan (cached or selected) → layouts → Exec → OPCHECK.

#include <initializer_list>
#include <span>
#include <string>

#include "model/operation/kernel.h"
#include "model/operation/opcheck.h"
#include "model/operation/plan_cache.h"
#include "singa/core/device.h"
#include "singa/core/stats.h"
#include "singa/core/threads.h"

namespace singa {

/// Preference and byte limit of one call; the default follows SetPreference.
struct Choice {
  Preference preference = GetPreference();
  size_t workspace_limit = size_t{1} << 30;
};

/// Makes the first willing kernel's plan, by preference. Raises Unavailable with every kernel's
/// reason if none is.
template <class Spec>
PlanPtr SelectPlan(const Spec& spec, const Choice& choice) {
  std::string reasons;
  PlanPtr fallback;
  for (const auto& kernel : Registry<Spec>::Get().kernels()) {
    const bool reference = std::string_view(kernel->implementation()) == "reference";
    if (choice.preference == Preference::kReference && !reference) continue;
    std::string reason = kernel->Refuses(spec);
    if (reason.empty()) {
      PlanPtr plan = kernel->MakePlan(spec);
      const size_t limit = choice.preference == Preference::kNoWorkspace ? 0
                           : choice.preference == Preference::kLimitedWorkspace
                               ? choice.workspace_limit
                               : SIZE_MAX;
      if (plan->workspace_bytes() <= limit) return plan;
      // Nothing fits: the smallest workspace is the nearest to what was asked for.
      if (!fallback || plan->workspace_bytes() < fallback->workspace_bytes()) fallback = plan;
      reason = "needs " + std::to_string(plan->workspace_bytes()) + " bytes of workspace";
    }
    reasons += std::string("\n  ") + kernel->implementation() + ": " + reason;
  }
  if (fallback && choice.preference == Preference::kNoWorkspace) return fallback;
  throw Unavailable(detail::Message(spec.op(), "no implementation takes this:", reasons));
}

/// The plan of `spec` from the cache, or selected and made now.
template <class Spec>
PlanPtr FindPlan(const Device& device, const Spec& spec, const Choice& choice = {}) {
  SetCurrentOp(spec.op());
  OpSignature signature(spec.op());
  signature.Add("device",
                static_cast<uint64_t>(device.kind()) << 32 | static_cast<uint32_t>(device.id()));
  signature.Add("preference, strictness and threads",
                static_cast<uint64_t>(choice.preference) << 33 |
                    static_cast<uint64_t>(IsStrict()) << 32 | static_cast<uint32_t>(NumThreads()));
  signature.Add("workspace limit", choice.workspace_limit);
  Spec::VisitFields(spec, signature);
  struct Context {
    const Spec& spec;
    const Choice& choice;
  } context{spec, choice};
  return FindOrMakePlan(
      signature,
      [](const void* opaque) {
        const auto& c = *static_cast<const Context*>(opaque);
        return SelectPlan(c.spec, c.choice);
      },
      &context);
}

/// `t` in the layout that the plan wants for argument `i`: itself, or a counted copy. Plain means
/// contiguous.
inline Tensor Wanted(const Plan& plan, size_t i, const Tensor& t) {
  if (t.empty()) return t;
  const LayoutPtr want = plan.input_layout(i);
  if (want) return t.ToLayout(want);
  return t.Contiguous();
}

/// A fresh tensor for output `i` of the plan.
inline Tensor NewOutput(const Plan& plan, size_t i, const Shape& shape, const DevicePtr& device,
                        DType dtype) {
  if (LayoutPtr layout = plan.output_layout(i)) return Tensor(device, layout);
  return Tensor(shape, device, dtype);
}

/// Executes the plan, then compares with `reference` where OPCHECK asks for it. Arguments are in
/// the plan's layouts.
template <class Spec>
void Run(const Spec& spec, const DevicePtr& device, const PlanPtr& plan,
         std::span<const Tensor> inputs, std::span<const Tensor> outputs,
         const Scalars& scalars = {}) {
  if (opcheck::Wanted(spec.op(), *plan)) [[unlikely]] {
    opcheck::RunChecked(spec, device, plan, inputs, outputs, scalars);
  } else {
    device->Exec(spec.op(), plan, inputs, outputs, scalars, SpecRef::Of(spec));
  }
}

template <class Spec>
void Run(const Spec& spec, const DevicePtr& device, const PlanPtr& plan,
         std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs,
         const Scalars& scalars = {}) {
  Run(spec, device, plan, std::span<const Tensor>(inputs.begin(), inputs.size()),
      std::span<const Tensor>(outputs.begin(), outputs.size()), scalars);
}

}  // namespace singa
