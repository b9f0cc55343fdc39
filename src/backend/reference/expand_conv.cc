// Convolutions behind one with 1 x 1 filters, whose result is computed as a whole, in the
// workspace.

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/expand_conv_spec.h"
#include "singa/core/block.h"

namespace singa::reference {
namespace {

PlanPtr ReferenceOf(const ConvSpec& spec) {
  return FindKernel<ConvSpec>(kReference)->Make(spec).plan();
}

size_t ExpandedBytes(const ExpandConvSpec& spec) {
  const auto elements = static_cast<size_t>(spec.geometry.input_shape().Count());
  return RoundUp(elements * SizeOf(spec.dtype), size_t{64});
}

size_t Workspace(const ExpandConvSpec& spec) {
  return ExpandedBytes(spec) + std::max(ReferenceOf(spec.Inner())->workspace_bytes(),
                                        ReferenceOf(spec)->workspace_bytes());
}

void Run(const ExpandConvSpec& spec, const Execution& execution) {
  const std::span<const Tensor> inputs = execution.inputs;
  const size_t bytes = ExpandedBytes(spec);
  const auto block = std::make_shared<Block>(inputs[0].device(), execution.workspace, bytes, [] {});
  const Shape shape = spec.geometry.input_shape();
  const Tensor expanded(block, shape, ContiguousStrides(shape), 0, spec.dtype);
  void* workspace = static_cast<char*>(execution.workspace) + bytes;
  const auto run = [&](const ConvSpec& one, const Tensor& x, std::span<const Tensor> filters,
                       std::span<const Tensor> y) {
    std::vector<Tensor> arguments = {x};
    arguments.insert(arguments.end(), filters.begin(), filters.end());
    ReferenceOf(one)->Run({execution.device, arguments, y, execution.scalars, workspace});
  };
  run(spec.Inner(), inputs[0], inputs.subspan(spec.expand_input()), {&expanded, 1});
  run(spec, expanded, inputs.subspan(1, spec.expand_input() - 1), execution.outputs);
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<ExpandConvSpec, Run, Workspace>(); }

}  // namespace singa::reference
