#pragma once

// A convolution that is computed as another one, with a filter that is made of the given one.

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/spec.h"

namespace singa::onednn {

/// oneDNN's plan of the other convolution. The filter or its gradient is row-major outside; inside
/// it has the layout that the plan wants. Both lie in the workspace.
class InnerConvolution {
 public:
  static PlanOrReason Make(const ConvSpec& spec) {
    return FindKernel<ConvSpec>("onednn")->Make(spec);
  }

  InnerConvolution(const ConvSpec& spec, PlanPtr plan)
      : gradient_(spec.pass == ConvPass::kBackwardW),
        dtype_(spec.dtype),
        plain_bytes_(static_cast<size_t>(spec.geometry.weight_shape().Count()) * SizeOf(dtype_)),
        plan_(std::move(plan)),
        layout_(gradient_ ? plan_->output_layout(0) : plan_->input_layout(1)) {}

  const Plan& plan() const { return *plan_; }
  /// The pass computes the filter's gradient.
  bool gradient() const { return gradient_; }
  size_t plain_bytes() const { return plain_bytes_; }
  size_t workspace_bytes() const {
    return Aligned(plain_bytes_) + Aligned(inside_bytes()) + plan_->workspace_bytes();
  }

  /// Calls write(filter), which makes the row-major filter, and runs the plan; or runs the plan and
  /// calls read(gradient). Replaces the filter's place in `inputs` or `outputs`.
  template <class Write, class Read>
  void Run(const Execution& execution, std::vector<Tensor> inputs, std::vector<Tensor> outputs,
           void* workspace, const Write& write, const Read& read) const {
    char* plain = static_cast<char*>(workspace);
    char* inside = layout_ ? plain + Aligned(plain_bytes_) : plain;
    (gradient_ ? outputs[0] : inputs[1]) = At(execution.device, inside, inside_bytes());
    if (!gradient_) {
      write(plain);
      if (layout_) layout_->Pack(plain, inside);
    }
    plan_->Run({execution.device, inputs, outputs, execution.scalars,
                plain + Aligned(plain_bytes_) + Aligned(inside_bytes())});
    if (gradient_) {
      if (layout_) layout_->Unpack(inside, plain);
      read(static_cast<const char*>(plain));
    }
  }

  /// Memory as a tensor for the plan, which knows its layout.
  Tensor At(Device& device, void* data, size_t bytes) const {
    const auto block = std::make_shared<Block>(device.shared_from_this(), data, bytes, [] {});
    return Tensor(block, {static_cast<int64_t>(bytes / SizeOf(dtype_))}, {1}, 0, dtype_);
  }
  static size_t Aligned(size_t bytes) { return RoundUp(bytes, size_t{64}); }

 private:
  size_t inside_bytes() const { return layout_ ? layout_->bytes() : plain_bytes_; }

  const bool gradient_;
  const DType dtype_;
  const size_t plain_bytes_;
  const PlanPtr plan_;
  const LayoutPtr layout_;
};

}  // namespace singa::onednn
