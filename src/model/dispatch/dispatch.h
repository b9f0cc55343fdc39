#pragma once

// From a Spec to a result: signature → plan (cached or selected) → layouts → Exec → OPCHECK.

#include <initializer_list>
#include <span>
#include <vector>

#include "model/dispatch/kernel.h"
#include "model/dispatch/op_signature.h"
#include "model/dispatch/op_type.h"
#include "model/dispatch/plan_options.h"
#include "singa/core/device.h"
#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa {

/// The key under which a plan of `spec` is kept.
OpSignature SignatureOf(const Device& device, const OpRef& spec, const PlanOptions& options);

/// The plan of `spec` from the cache, or selected and made now.
PlanPtr FindPlan(const Device& device, const OpRef& spec, const PlanOptions& options = {});

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
void Run(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
         std::span<const Tensor> inputs, std::span<const Tensor> outputs,
         const Scalars& scalars = {});
inline void Run(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs,
                const Scalars& scalars = {}) {
  Run(spec, device, plan, std::span<const Tensor>(inputs.begin(), inputs.size()),
      std::span<const Tensor>(outputs.begin(), outputs.size()), scalars);
}

/// A tensor that is passed to Call.
struct Passed {
  Passed(const Tensor& tensor) : t(&tensor) {}  // NOLINT(google-explicit-constructor)
  const Tensor* t;
};

/// What a Spec does not say about a call.
struct CallOptions {
  const char* op = nullptr;      ///< the name in messages; null: the Spec's
  const Shape* shape = nullptr;  ///< of results of which the Spec knows the number of elements
  bool zeros = false;            ///< nothing is executed: what is wanted are zeros
  Scalars scalars = {};
  PlanOptions plan = {};
};

namespace detail {
/// The outputs are `one`, or `all`.
void Call(const OpRef& spec, std::span<const Passed> inputs, Tensor* one, std::vector<Tensor>* all,
          const CallOptions& options);
}  // namespace detail

/// The output of a call. The Spec's VisitArguments says what is checked, in which layouts the
/// arguments are, and what is allocated. An input that the call does not have is an empty tensor,
/// or any.
inline Tensor Call(const OpRef& spec, std::initializer_list<Passed> inputs,
                   const CallOptions& options = {}) {
  Tensor output;
  detail::Call(spec, {inputs.begin(), inputs.size()}, &output, nullptr, options);
  return output;
}
/// All outputs of a call. One that is not wanted is empty.
inline std::vector<Tensor> CallForAll(const OpRef& spec, std::initializer_list<Passed> inputs,
                                      const CallOptions& options = {}) {
  std::vector<Tensor> outputs;
  detail::Call(spec, {inputs.begin(), inputs.size()}, nullptr, &outputs, options);
  return outputs;
}

}  // namespace singa
