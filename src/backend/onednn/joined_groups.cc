// Grouped convolutions whose groups have fewer channels than a vector, such as ResNeXt's with 4 and
// 8. For these oneDNN takes shorter vectors, and images in shorter blocks, which the convolutions
// beside it then have to read. Here as many groups are joined as fill a vector. An output channel
// has zeros in the filter for the channels of the other groups. That costs multiplications, but
// these layers have few.
//
// Zero times infinity is NaN, so a value that is not finite also reaches the results of the groups
// that are joined with its own.

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/onednn/engine.h"
#include "core/tensor/round_up.h"
#include "model/dispatch/kernel.h"
#include "model/spec/spatial/conv.h"

namespace singa::onednn {
namespace {

/// More would mostly multiply zeros.
constexpr int64_t kMostJoined = 8;

/// How many groups have whole vectors of channels together, on both sides; 0: there is no such
/// number.
int64_t GroupsToJoin(const Recorder& r) {
  const InstructionSet set = EffectiveInstructionSet();
  const int64_t lanes = set >= InstructionSet::kAvx512 ? 16 : 8;
  const int64_t in = r.in_channels / r.group, out = r.out_channels / r.group;
  if (set < InstructionSet::kAvx2 || std::min(in, out) >= lanes) return 0;
  for (int64_t joined = 2; joined <= kMostJoined; ++joined)
    if (r.group % joined == 0 && joined * in % lanes == 0 && joined * out % lanes == 0)
      return joined;
  return 0;
}

ConvSpec Joined(const ConvSpec& spec) {
  const int64_t joined = GroupsToJoin(spec.geometry);
  ConvSpec wide = spec;
  wide.geometry.group /= joined;
  wide.geometry.col_height *= joined;
  return wide;
}

/// Runs the plan of the convolution with joined groups. The filter, or its gradient, is plain
/// outside and has the plan's layout inside.
class JoinedPlan final : public Plan {
 public:
  JoinedPlan(const ConvSpec& spec, PlanPtr plan)
      : Plan("joined groups"),
        gradient_(spec.pass == ConvPass::kBackwardW),
        joined_(GroupsToJoin(spec.geometry)),
        filters_(spec.geometry.out_channels),
        filters_of_group_(spec.geometry.out_channels / spec.geometry.group),
        dtype_(spec.dtype),
        plan_(std::move(plan)),
        layout_(gradient_ ? plan_->output_layout(0) : plan_->input_layout(1)) {
    const size_t element = SizeOf(dtype_);
    filter_bytes_ = static_cast<size_t>(spec.geometry.col_height) * element;
    plain_bytes_ = static_cast<size_t>(filters_ * joined_) * filter_bytes_;
    inner_bytes_ = layout_ ? layout_->bytes() : plain_bytes_;
  }

  std::string Describe() const override {
    return "joined groups (" + plan_->Describe() + ")";
  }
  LayoutPtr input_layout(size_t i) const override {
    return !gradient_ && i == 1 ? nullptr : plan_->input_layout(i);
  }
  LayoutPtr output_layout(size_t i) const override {
    return gradient_ && i == 0 ? nullptr : plan_->output_layout(i);
  }
  int inplace_input(size_t i) const override { return plan_->inplace_input(i); }
  size_t workspace_bytes() const override {
    return Aligned(plain_bytes_) + Aligned(inner_bytes_) + plan_->workspace_bytes();
  }
  size_t bytes() const override { return sizeof(*this) + plan_->bytes(); }

  void Run(const Execution& execution) const override {
    char* plain = static_cast<char*>(execution.workspace);
    char* inner = layout_ ? plain + Aligned(plain_bytes_) : plain;
    std::vector<Tensor> inputs(execution.inputs.begin(), execution.inputs.end());
    std::vector<Tensor> outputs(execution.outputs.begin(), execution.outputs.end());
    (gradient_ ? outputs[0] : inputs[1]) = FilterAt(inner, execution.device);
    if (!gradient_) {
      std::memset(plain, 0, plain_bytes_);
      const char* narrow = execution.in<char>(1);
      for (int64_t i = 0; i < filters_; ++i)
        std::memcpy(plain + Place(i), narrow + Row(i), filter_bytes_);
      if (layout_) layout_->Pack(plain, inner);
    }
    plan_->Run({execution.device, inputs, outputs, execution.scalars,
                plain + Aligned(plain_bytes_) + Aligned(inner_bytes_)});
    if (gradient_) {
      if (layout_) layout_->Unpack(inner, plain);
      char* narrow = execution.out<char>(0);
      for (int64_t i = 0; i < filters_; ++i)
        std::memcpy(narrow + Row(i), plain + Place(i), filter_bytes_);
    }
  }

 private:
  static size_t Aligned(size_t bytes) { return RoundUp(bytes, size_t{64}); }
  /// Offsets of filter i: in W, and in the filters of joined groups.
  size_t Row(int64_t i) const { return static_cast<size_t>(i) * filter_bytes_; }
  size_t Place(int64_t i) const {
    const int64_t group = i / filters_of_group_;
    return Row(i * joined_ + group % joined_);
  }
  /// A tensor for the primitive, which knows the layout.
  Tensor FilterAt(void* data, Device& device) const {
    const auto block =
        std::make_shared<Block>(device.shared_from_this(), data, inner_bytes_, [] {});
    return Tensor(block, {static_cast<int64_t>(inner_bytes_ / SizeOf(dtype_))}, {1}, 0, dtype_);
  }

  const bool gradient_;
  const int64_t joined_, filters_, filters_of_group_;
  const DType dtype_;
  const PlanPtr plan_;
  const LayoutPtr layout_;
  size_t filter_bytes_, plain_bytes_, inner_bytes_;
};

std::string Refuses(const ConvSpec& spec) {
  if (spec.pass == ConvPass::kBackwardB) return "groups are joined for the other passes";
  if (spec.plain) return "groups are joined in blocked and channels-last images";
  if (spec.geometry.group == 1) return "there is one group";
  if (GroupsToJoin(spec.geometry) == 0)
    return "groups are joined where at most 8 of them fill a vector, on CPUs with AVX2";
  return "";
}

PlanOrReason Make(const ConvSpec& spec) {
  const PlanOrReason made = Registry<ConvSpec>::Get().Find("onednn")->Make(Joined(spec));
  if (!made) return made;
  return std::make_shared<JoinedPlan>(spec, made.plan());
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<ConvSpec>(DeviceKind::kCpu, "joined groups", {.refuses = Refuses, .make = Make},
                     AskedFirst::kYes);
}

}  // namespace singa::onednn
