#pragma once

// From a Spec to a result: signature → plan (cached or selected) → layouts → Exec → OPCHECK.

#include <initializer_list>
#include <span>
#include <utility>

#include "model/dispatch/explain.h"
#include "model/dispatch/kernel.h"
#include "model/dispatch/opcheck.h"
#include "model/dispatch/plan_cache.h"
#include "model/dispatch/select.h"
#include "singa/core/device.h"
#include "singa/core/stats.h"
#include "singa/core/threads.h"

namespace singa {

/// The key under which a plan of `spec` is kept.
template <class Spec>
OpSignature SignatureOf(const Device& device, const Spec& spec, const PlanOptions& options) {
  OpSignature signature(spec.op());
  signature.Add("device",
                static_cast<uint64_t>(device.kind()) << 32 | static_cast<uint32_t>(device.id()));
  signature.Add("preference, strictness and threads",
                static_cast<uint64_t>(options.preference) << 33 |
                    static_cast<uint64_t>(IsStrict()) << 32 | static_cast<uint32_t>(NumThreads()));
  if (device.kind() == DeviceKind::kCuda)
    signature.Add("arithmetic",
                  static_cast<uint64_t>(IsTf32()) << 1 | static_cast<uint64_t>(IsDeterministic()));
  signature.Add("workspace limit", options.workspace_limit);
  Spec::VisitFields(spec, signature);
  return signature;
}

/// The plan of `spec` from the cache, or selected and made now.
template <class Spec>
PlanPtr FindPlan(const Device& device, const Spec& spec, const PlanOptions& options = {}) {
  SetCurrentOp(spec.op());
  struct Context {
    const Device& device;
    const Spec& spec;
    const PlanOptions& options;
  } context{device, spec, options};
  const PlanPtr plan = FindOrMakePlan(
      SignatureOf(device, spec, options),
      [](const void* opaque) {
        const auto& c = *static_cast<const Context*>(opaque);
        PlanPtr made = Selector<Spec>(c.device, c.spec, c.options, nullptr).Select();
        // What was measured is now the choice of kFastest too.
        if (c.options.preference == Preference::kAutotune)
          DropPlan(
              SignatureOf(c.device, c.spec, {Preference::kFastest, c.options.workspace_limit}));
        return made;
      },
      &context);
  if (IsExplaining()) [[unlikely]]
    if (NeedsExplanation(plan)) {
      Selection selection;
      Selector<Spec>(device, spec, options, &selection).Select();
      Explain(plan, std::move(selection));
    }
  return plan;
}

/// `t` in the layout that the plan wants for argument `i`: `t` itself, or a counted copy. A plain
/// result is contiguous.
inline Tensor InPlanLayout(const Plan& plan, size_t i, const Tensor& t) {
  return t.empty() ? t : t.ToLayout(plan.input_layout(i));
}

/// A fresh tensor for output `i` of the plan.
inline Tensor NewOutput(const Plan& plan, size_t i, const Shape& shape, const DevicePtr& device,
                        DType dtype) {
  if (LayoutPtr layout = plan.output_layout(i)) return Tensor(device, layout);
  return Tensor(shape, device, dtype);
}

/// Executes the plan. Under OPCHECK it also compares with `reference`. Arguments are in the plan's
/// layouts.
template <class Spec>
void Run(const Spec& spec, const DevicePtr& device, const PlanPtr& plan,
         std::span<const Tensor> inputs, std::span<const Tensor> outputs,
         const Scalars& scalars = {}) {
  if (opcheck::IsEnabledFor(spec.op(), *plan)) [[unlikely]] {
    opcheck::RunChecked(spec, device, plan, inputs, outputs, scalars,
                        [&] { device->Exec(spec.op(), plan, inputs, outputs, scalars); });
  } else {
    device->Exec(spec.op(), plan, inputs, outputs, scalars, spec);
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
