// Convolutions: products whose factors are found in images in channels-last, or in blocks of 16
// channels. Filters lie in the order (out, height, width, in), which for 1 x 1 filters is
// row-major, in all passes.

#include <algorithm>
#include <cstring>
#include <memory>

#include "backend/cpu/batch_blocked/convolution.h"
#include "backend/cpu/norm/channel_sums.h"
#include "backend/cpu/parts_product/images.h"
#include "backend/cpu/parts_product/offer.h"
#include "backend/cpu/winograd/convolution.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu::parts_product {
namespace {

/// A gradient of strided 1 x 1 filters is zero but for each stride-th pixel.
bool LeavesGaps(const ConvSpec& spec) {
  return spec.pass == ConvPass::kBackwardX && spec.geometry.stride_h() > 1;
}

/// Rows, columns and terms of the product.
Sizes SizesOf(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  const int64_t outputs = r.batchsize * r.conv_pixels(), taps = r.taps();
  const int64_t in = RoundUp(r.in_channels, kRun), out = RoundUp(r.out_channels, kRun);
  switch (spec.pass) {
    case ConvPass::kForward:
      return {1, outputs, r.out_channels, taps * in};
    case ConvPass::kBackwardX:
      return {1, LeavesGaps(spec) ? outputs : r.batchsize * r.pixels(), r.in_channels, taps * out};
    default:
      return {1, r.out_channels, taps * in, outputs};
  }
}

class ConvolutionPlan final : public Plan {
 public:
  ConvolutionPlan(const ConvSpec& spec, const PartsUnit& unit, LaneTag tag)
      : Plan("amx"),
        spec_(spec),
        unit_(unit),
        x_(spec.geometry.input_shape(), tag),
        y_(spec.geometry.output_shape(), tag),
        // Where gaps are left, dx has a row for each pixel of dy, and so does the window.
        window_(spec.geometry, spec.pass == ConvPass::kBackwardX && !LeavesGaps(spec)),
        product_(unit, SizesOf(spec), spec.threads),
        x_layout_(LaneLayout(spec.geometry.input_shape(), spec.dtype, tag)),
        y_layout_(LaneLayout(spec.geometry.output_shape(), spec.dtype, tag)),
        w_layout_(LaneLayout(spec.geometry.weight_shape(), spec.dtype, LaneTag::kNhwc)) {
    if (spec.pass == ConvPass::kBackwardW && spec.geometry.bias)
      bias_ = MakeChannelSums(tag, spec.geometry.output_shape(), spec.dtype);
  }

  std::string Describe() const override { return NameOf(unit_); }
  double factor_error() const override { return batch_blocked::PartsError(unit_.parts); }
  size_t workspace_bytes() const override {
    const size_t bias = bias_ ? bias_->workspace_bytes() : 0;
    return std::max(product_.workspace_bytes(), bias);
  }
  LayoutPtr input_layout(size_t i) const override {
    if (i == 0) return spec_.pass == ConvPass::kForward ? x_layout_ : y_layout_;
    if (i == 1) return spec_.pass == ConvPass::kBackwardW ? x_layout_ : w_layout_;
    return spec_.has_add && i == spec_.add_input() ? y_layout_ : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override {
    if (i > 0) return nullptr;
    return spec_.pass == ConvPass::kForward     ? y_layout_
           : spec_.pass == ConvPass::kBackwardX ? x_layout_
                                                : w_layout_;
  }
  int inplace_input(size_t i) const override {
    return i == 0 && spec_.has_add ? static_cast<int>(spec_.add_input()) : -1;
  }

  void Run(const Execution& execution) const override {
    switch (spec_.pass) {
      case ConvPass::kForward:
        return Forward(execution);
      case ConvPass::kBackwardX:
        return BackwardX(execution);
      default:
        BackwardW(execution);
        if (bias_)
          bias_->Run({execution.device, execution.inputs.first(1), execution.outputs.subspan(1, 1),
                      execution.scalars, execution.workspace});
    }
  }

 private:
  const Recorder& geometry() const { return spec_.geometry; }

  static bool Streams(const float* to, const ImageMemory& image) {
    return CanStream(to, image.lanes.column_step, image.lanes.images * image.lanes.image_step * 4);
  }

  void Forward(const Execution& execution) const {
    const Pixels x(execution.in<float>(0), x_, window_, true);
    const Filters filters(execution.in<float>(1), geometry().out_channels, geometry().taps(),
                          geometry().in_channels, false);
    ImageTarget y(execution.out<float>(0), y_, y_.lanes.height, y_.lanes.width);
    if (geometry().bias) y.bias = execution.in<float>(2);
    if (spec_.has_add) y.added = execution.in<float>(spec_.add_input());
    y.finish.relu = static_cast<bool>(spec_.activation);
    y.finish.streams = Streams(y.data, y_);
    product_.Run(x, filters, y, execution.workspace);
  }

  void BackwardX(const Execution& execution) const {
    auto* to = execution.out<float>(0);
    Window same = window_;
    if (LeavesGaps(spec_)) {
      const int64_t count = x_.lanes.images * x_.lanes.image_step;
      ParallelFor(count, kParallelGrain,
                  [&](int64_t begin, int64_t end) { std::fill(to + begin, to + end, 0.0f); });
      same.down = {y_.lanes.height, y_.lanes.height, 1, 1, 1, 0, false};
      same.across = {y_.lanes.width, y_.lanes.width, 1, 1, 1, 0, false};
    }
    const Pixels dy(execution.in<float>(0), y_, same, true);
    const Filters filters(execution.in<float>(1), geometry().out_channels, geometry().taps(),
                          geometry().in_channels, true);
    ImageTarget dx(to, x_, same.down.results, same.across.results);
    if (LeavesGaps(spec_)) dx.stride = geometry().stride_h();
    dx.finish.streams = !LeavesGaps(spec_) && Streams(to, x_);
    product_.Run(dy, filters, dx, execution.workspace);
  }

  void BackwardW(const Execution& execution) const {
    Window same = window_;
    same.down = {y_.lanes.height, y_.lanes.height, 1, 1, 1, 0, false};
    same.across = {y_.lanes.width, y_.lanes.width, 1, 1, 1, 0, false};
    const Pixels dy(execution.in<float>(0), y_, same, false);
    const Pixels x(execution.in<float>(1), x_, window_, false);
    const FilterTarget dw(execution.out<float>(0), geometry().out_channels, geometry().taps(),
                          geometry().in_channels);
    product_.Run(dy, x, dw, execution.workspace);
  }

  ConvSpec spec_;
  PartsUnit unit_;
  ImageMemory x_, y_;
  Window window_;
  BlockedProduct product_;
  LayoutPtr x_layout_, y_layout_, w_layout_;
  PlanPtr bias_;
};

}  // namespace

std::string Refuses(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  if (spec.pass == ConvPass::kBackwardB) return "bfloat16 parts are for the other passes";
  if (spec.dtype != kFloat32) return "bfloat16 parts are for float32";
  if (spec.plain) return "bfloat16 parts are for channels-last and blocked images";
  if (r.spatial != 2) return "bfloat16 parts are for images (N, C, H, W)";
  if (r.group != 1) return "bfloat16 parts are for one group";
  if (spec.activation && spec.activation.kind != ActivationKind::kRelu)
    return "products of bfloat16 parts have no activation but ReLU";
  if (r.batchsize * r.conv_pixels() == 0) return "there is nothing to sum up";
  if (batch_blocked::TagFor(spec) == LaneTag::kNChw16c &&
      (r.in_channels % kRun != 0 || r.out_channels % kRun != 0))
    return "bfloat16 parts are for whole blocks of channels";
  if (LeavesGaps(spec) &&
      (r.taps() > 1 || r.stride_w() != r.stride_h() || r.pad_top() > 0 || r.pad_left() > 0))
    return "bfloat16 parts are for gradients of 1 x 1 filters where there are strides";
  return "";
}

namespace {

/// Whether Winograd's method, which multiplies less, is faster. With float32 products it is not for
/// gradients of many filters over few tiles: it reads all values again for each block of filters.
bool WinogradIsFaster(const ConvSpec& spec) {
  if (!winograd::Refuses(spec).empty() || !winograd::Pays(spec)) return false;
  if (winograd::PartsPay(spec)) return true;
  const Recorder& r = spec.geometry;
  constexpr int64_t kTile = 4;
  const int64_t tiles =
      r.batchsize * CeilDivide(r.conv_height(), kTile) * CeilDivide(r.conv_width(), kTile);
  const bool few_tiles = tiles * (r.in_channels + r.out_channels) < r.in_channels * r.out_channels;
  return !(spec.pass == ConvPass::kBackwardW && few_tiles && r.conv_width() > kTile);
}

}  // namespace

bool Pays(const ConvSpec& spec) {
  const Recorder& r = spec.geometry;
  const bool tagged = LaneTagOf(spec.x_layout, r.input_shape(), spec.dtype).has_value() ||
                      LaneTagOf(spec.dy_layout, r.output_shape(), spec.dtype).has_value();
  // Runs that are half empty take as long as full ones.
  const bool filled = std::min(r.in_channels, r.out_channels) >= 2 * kRun;
  const Sizes sizes = SizesOf(spec);
  return tagged && filled && Pays(sizes.rows, sizes.columns, sizes.terms) &&
         !WinogradIsFaster(spec);
}

PlanPtr MakePlan(const ConvSpec& spec, const PartsUnit& unit) {
  return std::make_shared<ConvolutionPlan>(spec, unit, batch_blocked::TagFor(spec));
}

namespace {

constexpr const char* kSlower = "packing bfloat16 parts takes longer than AMX saves here";

std::string RefusesHere(const ConvSpec& spec) {
  std::string reason = IsOff();
  return reason.empty() ? Refuses(spec) : reason;
}

PlanOrReason Make(const ConvSpec& spec) {
  if (!Pays(spec)) return PlanOrReason::None(kSlower);
  return MakePlan(spec);
}

std::vector<Candidate> Candidates(const ConvSpec& spec) {
  const PlanPtr plan = MakePlan(spec);
  return {{"amx " + LayoutName(plan->input_layout(0)), [plan] { return plan; }, 0,
           Pays(spec) ? "" : kSlower}};
}

}  // namespace
}  // namespace singa::cpu::parts_product

namespace singa::cpu {

SINGA_KERNELS(cpu) {
  Register<ConvSpec>(DeviceKind::kCpu, "amx",
                     {.refuses = parts_product::RefusesHere,
                      .make = parts_product::Make,
                      .candidates = parts_product::Candidates,
                      .priority = 1});
}

}  // namespace singa::cpu
