// Convolutions of the result of a batch norm or an activation: that is computed as a whole, in the
// workspace.

#include <memory>

#include "core/tensor/dtype_switch.h"
#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/spec/spatial/norm_conv.h"
#include "singa/core/block.h"

namespace singa::reference {
namespace {

template <class Spec>
PlanPtr ReferenceOf(const Spec& spec) {
  return Registry<Spec>::Get().Find(kReference)->Make(spec).plan();
}

size_t NormalizedBytes(const NormConvSpec& spec) {
  const auto elements = static_cast<size_t>(spec.geometry.input_shape().Count());
  return RoundUp(elements * SizeOf(spec.dtype), size_t{64});
}

size_t Workspace(const NormConvSpec& spec) {
  return NormalizedBytes(spec) + ReferenceOf<ConvSpec>(spec)->workspace_bytes();
}

/// y = f(x)
void Activate(const NormConvSpec& spec, const void* x, void* y) {
  const UnaryOp function = formula::FunctionOf(spec.activation.kind);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const C low = static_cast<C>(spec.activation.low), high = static_cast<C>(spec.activation.high);
    for (int64_t i = 0; i < spec.geometry.input_shape().Count(); ++i)
      static_cast<T*>(y)[i] =
          Convert<T>(formula::Unary(function, Convert<C>(static_cast<const T*>(x)[i]), low, high));
  });
}

void Run(const NormConvSpec& spec, const Execution& execution) {
  const Tensor& x = execution.inputs[spec.x_input()];
  const size_t bytes = NormalizedBytes(spec);
  const auto block = std::make_shared<Block>(x.device(), execution.workspace, bytes, [] {});
  const Tensor normalized(block, x.shape(), ContiguousStrides(x.shape()), 0, spec.dtype);
  if (spec.has_norm) {
    const std::vector<Tensor> norm_inputs = spec.NormInputs(execution.inputs);
    ReferenceOf(spec.Norm())
        ->Run({execution.device, norm_inputs, {&normalized, 1}, execution.scalars, nullptr});
  } else {
    Activate(spec, execution.in<void>(spec.x_input()), execution.workspace);
  }
  const size_t count = spec.has_norm ? spec.mean_input() : execution.inputs.size();
  std::vector<Tensor> inputs(execution.inputs.begin(), execution.inputs.begin() + count);
  inputs[spec.x_input()] = normalized;
  ReferenceOf<ConvSpec>(spec)->Run({execution.device, inputs, execution.outputs, execution.scalars,
                                    static_cast<char*>(execution.workspace) + bytes});
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<NormConvSpec, Run, Workspace>(); }

}  // namespace singa::reference
