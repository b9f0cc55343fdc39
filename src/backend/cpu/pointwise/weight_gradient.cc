// The gradient of bfloat16 filters: dW[tap][in][out] = Σ over pixels of x[pixel under the tap][in]
// · dy[pixel][out]. Filters are 1 x 1, or have a stride: others are left to Winograd's method and
// to oneDNN.

#include <algorithm>
#include <memory>
#include <string>

#include "backend/cpu/linalg/outer_sums.h"
#include "backend/cpu/pointwise/convolution.h"
#include "core/device/instruction_set.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu::pointwise {
namespace {

constexpr int64_t kBlock = OuterSums::kSide;

class WeightGradientPlan final : public Plan {
 public:
  WeightGradientPlan(const ConvSpec& spec, const PairLoops& loops)
      : Plan("pairs"),
        loops_(loops),
        x_(spec.geometry.input_shape(), LaneTag::kNChw16c),
        dy_(spec.geometry.output_shape(), LaneTag::kNChw16c),
        x_layout_(LaneLayout(spec.geometry.input_shape(), kBFloat16, LaneTag::kNChw16c)),
        dy_layout_(LaneLayout(spec.geometry.output_shape(), kBFloat16, LaneTag::kNChw16c)),
        // That of filters in oneDNN's forward convolution.
        dw_layout_(MakeBlockedLayout(
            Placement::Of(spec.geometry.weight_shape(), {0, 1, 2, 3}, {{1, 8}, {0, 16}, {1, 2}}),
            kBFloat16, "oihw")),
        taps_(spec.geometry.taps()),
        sums_(loops, SizesOf(spec.geometry), spec.threads) {}

  std::string Describe() const override { return "pairs of pixels"; }
  LayoutPtr input_layout(size_t i) const override { return i == 0 ? dy_layout_ : x_layout_; }
  LayoutPtr output_layout(size_t) const override { return dw_layout_; }
  size_t workspace_bytes() const override { return sums_.workspace_bytes(); }

  void Run(const Execution& execution) const override {
    // Blocks of 16 outputs and as many inputs: [tap][pair of inputs][output][2].
    const int64_t in_blocks = x_.channels / kBlock;
    auto* dw = execution.out<uint32_t>(0);
    const auto factor = [](const BFloat16* data, const Lanes& image) -> OuterFactor {
      return {data, image.image_step, image.row_step, image.column_step, image.block_step};
    };
    sums_.Run(factor(execution.in<BFloat16>(1), x_), factor(execution.in<BFloat16>(0), dy_),
              execution.workspace, [&](int64_t in, int64_t out, int64_t tap, const float* sums) {
                const int64_t block = (out * in_blocks + in) * taps_ + tap;
                loops_.round_rows(sums, kBlock, kBlock, dw + block * OuterSums::kBlock / 2);
              });
  }

 private:
  /// Whether the pixels of an image are one row.
  static bool IsPlain(const Recorder& r) {
    return r.taps() == 1 && r.stride_h() == 1 && r.stride_w() == 1 &&
           std::max({r.pad_top(), r.pad_bottom(), r.pad_left(), r.pad_right()}) == 0;
  }
  OuterSums::Sizes SizesOf(const Recorder& r) const {
    const int64_t pixels = x_.height * x_.width;
    if (IsPlain(r)) return {x_.channels, dy_.channels, x_.images, {1, 1}, {pixels, pixels}};
    return {x_.channels,
            dy_.channels,
            x_.images,
            {dy_.height, x_.height, r.kernel_h(), r.stride_h(), r.dilation_h(), r.pad_top()},
            {dy_.width, x_.width, r.kernel_w(), r.stride_w(), r.dilation_w(), r.pad_left()}};
  }

  const PairLoops& loops_;
  Lanes x_, dy_;
  LayoutPtr x_layout_, dy_layout_, dw_layout_;
  int64_t taps_;
  OuterSums sums_;
};

}  // namespace

std::string RefusesWeightGradient(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  if (spec.pass != ConvPass::kBackwardW) return "sums over pixels are for gradients of filters";
  if (spec.dtype != kBFloat16) return "sums over pixels are for bfloat16";
  if (r.spatial != 2 || r.group != 1)
    return "sums over pixels are for images (N, C, H, W) and one group";
  if (r.bias) return "sums over pixels have no gradient of a bias";
  if (r.taps() > 1 && r.stride_h() == 1 && r.stride_w() == 1)
    return "sums over pixels are for 1 x 1 filters and for strides";
  if (r.in_channels % kBlock != 0 || r.out_channels % kBlock != 0)
    return "sums over pixels are for whole blocks of 16 channels";
  if (r.input_shape().Count() == 0 || r.output_shape().Count() == 0)
    return "there is nothing to sum up";
  if (spec.plain || LaneTagOf(spec.x_layout, r.input_shape(), kBFloat16) != LaneTag::kNChw16c)
    return "x is not in blocks of 16 channels";
  return "";
}

PlanPtr MakeWeightGradient(const ConvSpec& spec, const PairLoops& loops) {
  return std::make_shared<WeightGradientPlan>(spec, loops);
}

}  // namespace singa::cpu::pointwise

namespace singa::cpu {
namespace {

std::string Refuses(const ConvSpec& spec) {
  // AMX has kernels of its own.
  if (AllowedInstructionSet() != InstructionSet::kAvx512Bf16)
    return "sums over pixels are for CPUs with AVX-512 and bfloat16, and without AMX";
  return pointwise::RefusesWeightGradient(spec);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ConvSpec>(DeviceKind::kCpu, "pairs",
                     {.refuses = Refuses,
                      .make = [](const ConvSpec& spec) -> PlanOrReason {
                        return pointwise::MakeWeightGradient(spec, *Avx512PairLoops());
                      },
                      .priority = 1});
}

}  // namespace singa::cpu
