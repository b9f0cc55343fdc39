// Transposed convolutions whose stride is their kernel, as between the resolutions of U-Net. Each
// pixel of x becomes a patch of y, and patches do not overlap. So y is the result of a 1 x 1
// convolution that has a channel for each channel and pixel of the patch; what is left is to move
// these channels to their pixels. oneDNN's own way, a strided convolution's gradient, takes 2 to 15
// times as long.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/onednn/engine.h"
#include "backend/onednn/inner_convolution.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/dtype_switch.h"
#include "core/tensor/round_up.h"

namespace singa::onednn {
namespace {

/// The 1 x 1 convolution. Channel tap · C + c of its result is pixel `tap` of the patch of y's
/// channel c of C.
ConvSpec PatchSpec(const ConvTransposeSpec& spec) {
  const Recorder& r = spec.geometry;
  const std::vector<int64_t> ones(static_cast<size_t>(r.spatial), 1);
  const std::vector<int64_t> zeros(static_cast<size_t>(r.spatial), 0);
  ConvSpec inner = spec;
  inner.geometry =
      ConvRecorder(spec.op(), r.output_shape(), ones, ones, zeros, r.taps() * r.in_channels,
                   r.bias && spec.pass == ConvPass::kForward, ones, 1);
  inner.dy_layout = nullptr;
  if (const auto tag = LaneTagOf(spec.dy_layout, r.input_shape(), spec.dtype))
    inner.dy_layout = LaneLayout(inner.geometry.output_shape(), spec.dtype, *tag);
  return inner;
}

/// Patches as channels, of the plan's result or dy, and as pixels, of y or dy.
class Patches {
 public:
  Patches(const Recorder& r, const Shape& channels, LaneTag tag, size_t element)
      : from_(channels, tag),
        to_(r.input_shape(), tag),
        rows_(r.kernel_h()),
        columns_(r.kernel_w()),
        tap_step_(tag == LaneTag::kNhwc ? r.in_channels : to_.blocks * from_.block_step),
        element_(static_cast<int64_t>(element)) {}

  void ToPixels(const char* channels, char* pixels) const {
    WithRun([&](auto bytes) {
      Move([&](int64_t channel, int64_t pixel) {
        std::memcpy(pixels + pixel, channels + channel, bytes);
      });
    });
  }
  void ToChannels(const char* pixels, char* channels) const {
    WithRun([&](auto bytes) {
      Move([&](int64_t channel, int64_t pixel) {
        std::memcpy(channels + channel, pixels + pixel, bytes);
      });
    });
  }

 private:
  /// Calls f(bytes that lie side by side on both sides), which for blocks is a constant.
  template <class F>
  void WithRun(const F& f) const {
    const auto bytes = static_cast<size_t>(to_.lanes * element_);
    if (bytes == 64) return f(std::integral_constant<size_t, 64>());
    if (bytes == 32) return f(std::integral_constant<size_t, 32>());
    f(bytes);
  }
  /// Calls move(offset in channels, offset in pixels) for all of them.
  template <class MoveRun>
  void Move(const MoveRun& move) const {
    const int64_t rows = to_.images * to_.blocks * to_.height;
    ParallelFor(rows, kParallelGrain / (to_.width * to_.lanes) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t at = begin; at < end; ++at) {
                    const int64_t image = at / (to_.blocks * to_.height),
                                  block = at / to_.height % to_.blocks;
                    const int64_t row = at % to_.height, tap = row % rows_ * columns_;
                    const int64_t channel = image * from_.image_step + block * from_.block_step +
                                            row / rows_ * from_.row_step + tap * tap_step_;
                    const int64_t pixel =
                        image * to_.image_step + block * to_.block_step + row * to_.row_step;
                    for (int64_t w = 0; w < from_.width; ++w)
                      for (int64_t j = 0; j < columns_; ++j)
                        move((channel + w * from_.column_step + j * tap_step_) * element_,
                             (pixel + (w * columns_ + j) * to_.column_step) * element_);
                  }
                });
  }

  const Lanes from_, to_;
  const int64_t rows_, columns_, tap_step_, element_;
};

/// The gradient of the bias alone, for a dy in this layout.
PlanPtr BiasGradient(ConvTransposeSpec spec, const LayoutPtr& dy) {
  spec.pass = ConvPass::kBackwardB;
  spec.dy_layout = dy;
  for (const Kernel& kernel : KernelsOf<ConvTransposeSpec>())
    if (const PlanOrReason made = kernel.Make(spec)) return made.plan();
  return nullptr;
}

class PatchPlan final : public Plan {
 public:
  PatchPlan(const ConvTransposeSpec& spec, const ConvSpec& inner, LaneTag tag, PlanPtr plan)
      : Plan("patch upsampling"),
        spec_(spec),
        y_layout_(LaneLayout(spec.geometry.input_shape(), spec.dtype, tag)),
        channels_bytes_(static_cast<size_t>(inner.geometry.output_shape().Count()) *
                        SizeOf(spec.dtype)),
        patches_(spec.geometry, inner.geometry.output_shape(), tag, SizeOf(spec.dtype)),
        inner_(inner, std::move(plan)) {
    if (inner_.gradient() && spec.geometry.bias) bias_ = BiasGradient(spec, y_layout_);
  }

  std::string Describe() const override {
    return "patch upsampling (" + inner_.plan().Describe() + ")";
  }
  LayoutPtr input_layout(size_t i) const override {
    if (spec_.pass == ConvPass::kForward) return i == 0 ? inner_.plan().input_layout(0) : nullptr;
    if (i == 0) return y_layout_;
    return inner_.gradient() ? inner_.plan().input_layout(1) : nullptr;
  }
  LayoutPtr output_layout(size_t i) const override {
    if (spec_.pass == ConvPass::kForward) return y_layout_;
    return inner_.gradient() || i > 0 ? nullptr : inner_.plan().output_layout(0);
  }
  size_t workspace_bytes() const override {
    const size_t own =
        InnerConvolution::Aligned(channels_bytes_) + InnerConvolution::Aligned(BiasBytes());
    return own + std::max(inner_.workspace_bytes(), bias_ ? bias_->workspace_bytes() : 0);
  }
  size_t bytes() const override { return sizeof(*this) + inner_.plan().bytes(); }

  void Run(const Execution& execution) const override {
    SwitchSize(SizeOf(spec_.dtype), [&]<class U>() { RunAs<U>(execution); });
  }

 private:
  int64_t taps() const { return spec_.geometry.taps(); }
  /// Of y and of x.
  int64_t channels() const { return spec_.geometry.in_channels; }
  int64_t x_channels() const { return spec_.geometry.out_channels; }
  /// Of the biases of the 1 x 1 convolution.
  size_t BiasBytes() const {
    const bool forward = spec_.pass == ConvPass::kForward;
    return spec_.geometry.bias && forward
               ? static_cast<size_t>(taps() * channels()) * SizeOf(spec_.dtype)
               : 0;
  }

  /// U: an unsigned integer of the elements' size.
  template <class U>
  void RunAs(const Execution& execution) const {
    char* patches = static_cast<char*>(execution.workspace);
    char* biases = patches + InnerConvolution::Aligned(channels_bytes_);
    char* rest = biases + InnerConvolution::Aligned(BiasBytes());
    std::vector<Tensor> inputs(execution.inputs.begin(), execution.inputs.end());
    std::vector<Tensor> outputs(execution.outputs.begin(), execution.outputs.end());
    const bool forward = spec_.pass == ConvPass::kForward;
    (forward ? outputs[0] : inputs[0]) = inner_.At(execution.device, patches, channels_bytes_);
    if (!forward) patches_.ToChannels(execution.in<char>(0), patches);
    if (BiasBytes() > 0) {
      inputs[2] = inner_.At(execution.device, biases, BiasBytes());
      for (int64_t tap = 0; tap < taps(); ++tap)
        std::copy_n(execution.in<U>(2), channels(),
                    reinterpret_cast<U*>(biases) + tap * channels());
    }
    inner_.Run(
        execution, std::move(inputs), std::move(outputs), rest,
        [&](char* filter) { Arrange<true>(execution.in<U>(1), reinterpret_cast<U*>(filter)); },
        [&](const char* filter) {
          Arrange<false>(execution.out<U>(0), reinterpret_cast<const U*>(filter));
        });
    if (forward) patches_.ToPixels(patches, execution.out<char>(0));
    if (bias_)
      bias_->Run({execution.device, execution.inputs.first(1), execution.outputs.subspan(1, 1),
                  execution.scalars, rest});
  }

  /// Copies between W, (x's channels, y's channels, taps), and the 1 x 1 filter, (taps, y's
  /// channels, x's channels).
  template <bool kToFilter, class Of, class Filter>
  void Arrange(Of* w, Filter* filter) const {
    const int64_t row = channels() * taps(), kSome = 4;
    ParallelFor(CeilDivide(channels(), kSome), 1, [&](int64_t begin, int64_t end) {
      for (int64_t x = 0; x < x_channels(); ++x)
        for (int64_t c = begin * kSome; c < std::min(end * kSome, channels()); ++c)
          for (int64_t tap = 0; tap < taps(); ++tap) {
            auto& of_w = w[x * row + c * taps() + tap];
            auto& of_filter = filter[(tap * channels() + c) * x_channels() + x];
            if constexpr (kToFilter)
              of_filter = of_w;
            else
              of_w = of_filter;
          }
    });
  }

  const ConvTransposeSpec spec_;
  const LayoutPtr y_layout_;
  const size_t channels_bytes_;
  const Patches patches_;
  const InnerConvolution inner_;
  PlanPtr bias_;  ///< the gradient of the bias; null: not wanted
};

std::string Refuses(const ConvTransposeSpec& spec) {
  const Recorder& r = spec.geometry;
  if (spec.pass == ConvPass::kBackwardB) return "patches are for the other passes";
  if (std::string reason = RefusesFloat(spec.dtype); !reason.empty()) return reason;
  if (spec.plain) return "patches are for channels-last and blocked images";
  if (spec.has_add || spec.activation)
    return "patches are not followed by an addition or activation";
  if (r.spatial == 3) return "patches have one or two dimensions";
  if (r.group != 1 || r.taps() == 1) return "patches are for one group and kernels of many pixels";
  if (r.output_shape().Count() == 0) return "there is nothing to compute";
  for (const Recorder::Axis& axis : r.axes)
    if (axis.stride != axis.kernel || axis.before != 0 || axis.after != 0 ||
        (axis.kernel > 1 && axis.dilation != 1) || axis.size != axis.windows * axis.kernel)
      return "patches are for strides that are the kernel, without padding";
  return "";
}

PlanOrReason Make(const ConvTransposeSpec& spec) {
  const ConvSpec inner = PatchSpec(spec);
  const PlanOrReason made = InnerConvolution::Make(inner);
  if (!made) return made;
  const Plan& plan = *made.plan();
  const LayoutPtr layout =
      spec.pass == ConvPass::kForward ? plan.output_layout(0) : plan.input_layout(0);
  const auto tag = LaneTagOf(layout, inner.geometry.output_shape(), spec.dtype);
  if (!tag || spec.geometry.in_channels % BlockOf(*tag) != 0)
    return PlanOrReason::None("a patch's channels do not begin at a block");
  return std::make_shared<PatchPlan>(spec, inner, *tag, made.plan());
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<ConvTransposeSpec>(DeviceKind::kCpu, "patch upsampling",
                              {.refuses = Refuses, .make = Make, .priority = 1});
}

}  // namespace singa::onednn
