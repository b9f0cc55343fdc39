#pragma once

// From a Spec to a result: signature → plan (cached or selected) → layouts → Exec → OPCHECK.

#include <initializer_list>
#include <span>
#include <utility>

#include "model/operation/explain.h"
#include "model/operation/kernel.h"
#include "model/operation/opcheck.h"
#include "model/operation/plan_cache.h"
#include "model/operation/select.h"
#include "singa/core/device.h"
#include "singa/core/stats.h"
#include "singa/core/threads.h"

namespace singa {

/// The key under which a plan of `spec` is kept.
template <class Spec>
OpSignature SignatureOf(const Device& device, const Spec& spec, const Choice& choice) {
  OpSignature signature(spec.op());
  signature.Add("device",
                static_cast<uint64_t>(device.kind()) << 32 | static_cast<uint32_t>(device.id()));
  signature.Add("preference, strictness and threads",
                static_cast<uint64_t>(choice.preference) << 33 |
                    static_cast<uint64_t>(IsStrict()) << 32 | static_cast<uint32_t>(NumThreads()));
  if (device.kind() == DeviceKind::kCuda)
    signature.Add("arithmetic",
                  static_cast<uint64_t>(IsTf32()) << 1 | static_cast<uint64_t>(IsDeterministic()));
  signature.Add("workspace limit", choice.workspace_limit);
  Spec::VisitFields(spec, signature);
  return signature;
}

/// The plan of `spec` from the cache, or selected and made now.
template <class Spec>
PlanPtr FindPlan(const Device& device, const Spec& spec, const Choice& choice = {}) {
  SetCurrentOp(spec.op());
  struct Context {
    const Device& device;
    const Spec& spec;
    const Choice& choice;
  } context{device, spec, choice};
  const PlanPtr plan = FindOrMakePlan(
      SignatureOf(device, spec, choice),
      [](const void* opaque) {
        const auto& c = *static_cast<const Context*>(opaque);
        PlanPtr made = Selector<Spec>(c.device, c.spec, c.choice, nullptr).Select();
        // What was measured is now the choice of kFastest too.
        if (c.choice.preference == Preference::kAutotune)
          DropPlan(SignatureOf(c.device, c.spec, {Preference::kFastest, c.choice.workspace_limit}));
        return made;
      },
      &context);
  if (IsExplaining()) [[unlikely]]
    if (NeedsExplanation(plan)) {
      Selection selection;
      Selector<Spec>(device, spec, choice, &selection).Select();
      Explain(plan, std::move(selection));
    }
  return plan;
}

/// `t` in the layout that the plan wants for argument `i`: itself, or a counted copy. Plain means
/// contiguous.
inline Tensor Wanted(const Plan& plan, size_t i, const Tensor& t) {
  if (t.empty()) return t;
  const LayoutPtr want = plan.input_layout(i);
  return want || t.layout() ? t.ToLayout(want) : t.Contiguous();
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
    opcheck::RunChecked(spec, device, plan, inputs, outputs, scalars,
                        [&] { device->Exec(spec.op(), plan, inputs, outputs, scalars); });
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
