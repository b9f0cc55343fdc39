// Products of images and one number per channel, and their gradients, in layouts with channels
// innermost. The gradients take one pass over dy and x.

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <type_traits>

#include "core/device/inline.h"
#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/channel_scale/spec.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

constexpr int64_t kMostChannels = 512;  // of a panel
constexpr int64_t kPixels = 256;        // whose products are summed in float32
using Floats = std::array<float, kMostChannels>;

/// Calls body(width); that of a blocked layout is a constant.
template <class Body>
SINGA_INLINE void WithWidth(int64_t width, const Body& body) {
  if (width == 16) {
    body(std::integral_constant<int64_t, 16>());
  } else if (width == 8) {
    body(std::integral_constant<int64_t, 8>());
  } else {
    body(width);
  }
}

/// y = x · s for some pixels, `step` apart. y may be x.
template <class T>
SINGA_MULTI_ISA void Scale(const T* x, const float* s, int64_t pixels, int64_t step, int64_t width,
                           T* y) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    for (int64_t at = 0; at < pixels * step; at += step) {
#pragma omp simd
      for (int64_t c = 0; c < n; ++c) y[at + c] = Convert<T>(Convert<float>(x[at + c]) * s[c]);
    }
  });
}

/// sum += dy · x, over some pixels.
template <class T>
SINGA_MULTI_ISA void AddProducts(const T* dy, const T* x, int64_t pixels, int64_t step,
                                 int64_t width, float* sum) {
  WithWidth(width, [&](auto n) SINGA_INLINE_LAMBDA {
    for (int64_t at = 0; at < pixels * step; at += step) {
#pragma omp simd
      for (int64_t c = 0; c < n; ++c)
        sum[c] += Convert<float>(dy[at + c]) * Convert<float>(x[at + c]);
    }
  });
}

/// The parts of all images that are computed together: a block of channels, or a panel of the
/// channels of a channels-last image.
struct Panels {
  Panels(const Shape& shape, LaneTag tag)
      : image(shape, tag),
        count((image.lanes + kMostChannels - 1) / kMostChannels),
        pixels(image.height * image.width) {}

  struct Panel {
    int64_t image, first, width, filled;  ///< the first channel, and channels without padding
    int64_t at;                           ///< offset of the first element
  };
  int64_t size() const { return image.images * image.blocks * count; }
  Panel Get(int64_t i) const {
    const int64_t n = i / (image.blocks * count), block = i / count % image.blocks;
    const int64_t begin = image.lanes * (i % count) / count;
    const int64_t end = image.lanes * (i % count + 1) / count;
    return {n, block * image.lanes + begin, end - begin, std::min(end, image.filled(block)) - begin,
            n * image.image_step + block * image.block_step + begin};
  }

  Lanes image;
  int64_t count, pixels;
};

class ChannelScalePlan : public Plan {
 public:
  ChannelScalePlan(const ChannelScaleSpec& spec, LaneTag tag)
      : Plan("cpu"),
        panels_(spec.shape, tag),
        channels_(spec.shape[1]),
        per_image_(spec.per_image),
        layout_(spec.x_layout) {}
  std::string Describe() const override { return "cpu channel scale"; }

 protected:
  /// The factors of a panel, and zeros for its padding.
  template <class T>
  void LoadFactors(const T* s, const Panels::Panel& panel, Floats& factors) const {
    const T* from = s + (per_image_ ? panel.image * channels_ : 0) + panel.first;
    for (int64_t c = 0; c < panel.width; ++c)
      factors[static_cast<size_t>(c)] = c < panel.filled ? Convert<float>(from[c]) : 0;
  }

  const Panels panels_;
  const int64_t channels_;
  const bool per_image_;
  const LayoutPtr layout_;
};

template <class T>
class ForwardPlan final : public ChannelScalePlan {
 public:
  using ChannelScalePlan::ChannelScalePlan;
  LayoutPtr input_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  LayoutPtr output_layout(size_t) const override { return layout_; }
  int inplace_input(size_t) const override { return 0; }

  void Run(const Execution& execution) const override {
    const Lanes& image = panels_.image;
    ParallelFor(panels_.size() * image.height, kParallelGrain / (image.row_step + 1) + 1,
                [&](int64_t begin, int64_t end) {
                  while (begin < end) {
                    const auto panel = panels_.Get(begin / image.height);
                    const int64_t row = begin % image.height;
                    const int64_t rows = std::min(end - begin, image.height - row);
                    const int64_t at = panel.at + row * image.row_step;
                    Floats factors;
                    LoadFactors(execution.in<T>(1), panel, factors);
                    Scale(execution.in<T>(0) + at, factors.data(), rows * image.width,
                          image.column_step, panel.width, execution.out<T>(0) + at);
                    begin += rows;
                  }
                });
  }
};

template <class T>
class BackwardPlan final : public ChannelScalePlan {
 public:
  BackwardPlan(const ChannelScaleBackwardSpec& spec, LaneTag tag)
      : ChannelScalePlan(spec, tag), need_x_(spec.need_x), need_s_(spec.need_s) {}
  LayoutPtr input_layout(size_t i) const override { return i < 2 ? layout_ : nullptr; }
  LayoutPtr output_layout(size_t i) const override { return i == 0 ? layout_ : nullptr; }
  int inplace_input(size_t i) const override { return i == 0 ? 0 : -1; }
  size_t workspace_bytes() const override {
    return need_s_ ? static_cast<size_t>(panels_.image.images * channels_) * sizeof(double) : 0;
  }

  void Run(const Execution& execution) const override {
    auto* sums = static_cast<double*>(execution.workspace);  // [image][channel]
    const int64_t work = panels_.image.image_step / (panels_.image.blocks * panels_.count);
    ParallelFor(panels_.size(), kParallelGrain / (work + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) RunPanel(execution, panels_.Get(i), sums);
    });
    if (!need_s_) return;
    T* ds = execution.out<T>(1);
    const int64_t images = panels_.image.images, size = images * channels_;
    for (int64_t c = 0; !per_image_ && c < channels_; ++c)
      for (int64_t n = 1; n < images; ++n) sums[c] += sums[n * channels_ + c];
    for (int64_t i = 0; i < (per_image_ ? size : channels_); ++i) ds[i] = Convert<T>(sums[i]);
  }

 private:
  void RunPanel(const Execution& execution, const Panels::Panel& panel, double* sums) const {
    const T *dy = execution.in<T>(0) + panel.at, *x = execution.in<T>(1) + panel.at;
    T* dx = need_x_ ? execution.out<T>(0) + panel.at : nullptr;
    const int64_t step = panels_.image.column_step;
    Floats factors, sum;
    LoadFactors(execution.in<T>(2), panel, factors);
    double* total = sums + panel.image * channels_ + panel.first;
    if (need_s_) std::fill_n(total, panel.filled, 0.0);
    for (int64_t pixel = 0; pixel < panels_.pixels; pixel += kPixels) {
      const int64_t count = std::min(kPixels, panels_.pixels - pixel), at = pixel * step;
      if (need_s_) {
        std::fill_n(sum.begin(), panel.width, 0.0f);
        AddProducts(dy + at, x + at, count, step, panel.width, sum.data());
        for (int64_t c = 0; c < panel.filled; ++c)
          total[c] += static_cast<double>(sum[static_cast<size_t>(c)]);
      }
      if (dx) Scale(dy + at, factors.data(), count, step, panel.width, dx + at);
    }
  }

  const bool need_x_, need_s_;
};

std::string Refuses(const ChannelScaleSpec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.shape.Count() == 0) return "there is nothing to compute";
  return LaneTagOf(spec.x_layout, spec.shape, spec.dtype) ? "" : "the channels are not innermost";
}

template <class Spec, template <class T> class SpecPlan>
PlanOrReason Make(const Spec& spec) {
  const LaneTag tag = *LaneTagOf(spec.x_layout, spec.shape, spec.dtype);
  if (spec.dtype == kBFloat16) return std::make_shared<SpecPlan<BFloat16>>(spec, tag);
  return std::make_shared<SpecPlan<float>>(spec, tag);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<ChannelScaleSpec>(DeviceKind::kCpu, "cpu",
                             {.refuses = Refuses, .make = Make<ChannelScaleSpec, ForwardPlan>});
  Register<ChannelScaleBackwardSpec>(
      DeviceKind::kCpu, "cpu",
      {.refuses = [](const ChannelScaleBackwardSpec& spec) { return Refuses(spec); },
       .make = Make<ChannelScaleBackwardSpec, BackwardPlan>});
}

}  // namespace singa::cpu
