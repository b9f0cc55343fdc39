// Convolutions of the result of a batch norm, an activation or a convolution with 1 x 1 filters:
// that is computed as a whole, in the workspace.

#include <algorithm>
#include <memory>
#include <vector>

#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/operation/conv/expand_conv_spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/elementwise/spec.h"
#include "singa/core/block.h"

namespace singa::reference {
namespace {

template <class Spec>
PlanPtr ReferenceOf(const Spec& spec) {
  return FindKernel<Spec>(kReference)->Make(spec).plan();
}

size_t ImageBytes(const ConvSpec& spec) {
  const auto elements = static_cast<size_t>(spec.geometry.input_shape().Count());
  return RoundUp(elements * SizeOf(spec.dtype), size_t{64});
}

size_t NormWorkspace(const NormConvSpec& spec) {
  return ImageBytes(spec) + ReferenceOf<ConvSpec>(spec)->workspace_bytes();
}

size_t ExpandWorkspace(const ExpandConvSpec& spec) {
  return ImageBytes(spec) + std::max(ReferenceOf(spec.Inner())->workspace_bytes(),
                                     ReferenceOf<ConvSpec>(spec)->workspace_bytes());
}

/// The convolution of the image that front(image, workspace) writes. Of the inputs, it takes the
/// first `count`, with that image in the place of x.
template <class Front>
void RunBehind(const ConvSpec& spec, const Execution& execution, size_t x_input, size_t count,
               const Front& front) {
  std::vector<Tensor> inputs(execution.inputs.begin(), execution.inputs.begin() + count);
  Tensor& x = inputs[x_input];
  const size_t bytes = ImageBytes(spec);
  const auto block = std::make_shared<Block>(x.device(), execution.workspace, bytes, [] {});
  const Shape shape = spec.geometry.input_shape();
  x = Tensor(block, shape, ContiguousStrides(shape), 0, spec.dtype);
  void* workspace = static_cast<char*>(execution.workspace) + bytes;
  front(x, workspace);
  ReferenceOf(spec)->Run(
      {execution.device, inputs, execution.outputs, execution.scalars, workspace});
}

void RunNorm(const NormConvSpec& spec, const Execution& execution) {
  const auto front = [&](const Tensor& image, void*) {
    if (spec.has_norm) {
      const std::vector<Tensor> inputs = spec.NormInputs(execution.inputs);
      ReferenceOf(spec.Norm())
          ->Run({execution.device, inputs, {&image, 1}, execution.scalars, nullptr});
      return;
    }
    Scalars limits;
    limits.v[0] = spec.front.low;
    limits.v[1] = spec.front.high;
    ReferenceOf(UnarySpec{formula::FunctionOf(spec.front.kind), spec.dtype})
        ->Run({execution.device,
               {&execution.inputs[spec.x_input()], 1},
               {&image, 1},
               limits,
               nullptr});
  };
  RunBehind(spec, execution, spec.x_input(), spec.mean_input(), front);
}

void RunExpand(const ExpandConvSpec& spec, const Execution& execution) {
  const auto front = [&](const Tensor& image, void* workspace) {
    std::vector<Tensor> inputs(execution.inputs.begin() + spec.expand_input(),
                               execution.inputs.end());
    inputs.insert(inputs.begin(), execution.inputs[0]);
    ReferenceOf(spec.Inner())
        ->Run({execution.device, inputs, {&image, 1}, execution.scalars, workspace});
  };
  RunBehind(spec, execution, 0, spec.expand_input(), front);
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<NormConvSpec, RunNorm, NormWorkspace>();
  RegisterReference<ExpandConvSpec, RunExpand, ExpandWorkspace>();
}

}  // namespace singa::reference
