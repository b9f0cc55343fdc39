// Convolutions of the result of a batch norm or an activation: that is computed as a whole, in the
// workspace.

#include <memory>

#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/elementwise/spec.h"
#include "singa/core/block.h"

namespace singa::reference {
namespace {

template <class Spec>
PlanPtr ReferenceOf(const Spec& spec) {
  return FindKernel<Spec>(kReference)->Make(spec).plan();
}

size_t NormalizedBytes(const NormConvSpec& spec) {
  const auto elements = static_cast<size_t>(spec.geometry.input_shape().Count());
  return RoundUp(elements * SizeOf(spec.dtype), size_t{64});
}

size_t Workspace(const NormConvSpec& spec) {
  return NormalizedBytes(spec) + ReferenceOf<ConvSpec>(spec)->workspace_bytes();
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
    Scalars limits;
    limits.v[0] = spec.front.low;
    limits.v[1] = spec.front.high;
    ReferenceOf(UnarySpec{formula::FunctionOf(spec.front.kind), spec.dtype})
        ->Run({execution.device, {&x, 1}, {&normalized, 1}, limits, nullptr});
  }
  std::vector<Tensor> inputs(execution.inputs.begin(),
                             execution.inputs.begin() + spec.mean_input());
  inputs[spec.x_input()] = normalized;
  ReferenceOf<ConvSpec>(spec)->Run({execution.device, inputs, execution.outputs, execution.scalars,
                                    static_cast<char*>(execution.workspace) + bytes});
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<NormConvSpec, Run, Workspace>(); }

}  // namespace singa::reference
