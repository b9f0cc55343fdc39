// Channel shuffles of images in layouts with channels innermost (axis_map_spec.h).

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/device/instruction_set.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/layout/axis_map_spec.h"

namespace singa::cpu {
namespace {

/// The channels of channels-last pixels take turns from two halves of each.
template <class U>
SINGA_MULTI_ISA void Interleave(const U* x, int64_t pixels, int64_t half, U* y) {
  for (int64_t p = 0; p < pixels; ++p, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (int64_t c = 0; c < half; ++c) {
      y[2 * c] = x[c];
      y[2 * c + 1] = x[half + c];
    }
  }
}

/// Its inverse.
template <class U>
SINGA_MULTI_ISA void Separate(const U* x, int64_t pixels, int64_t half, U* y) {
  for (int64_t p = 0; p < pixels; ++p, x += 2 * half, y += 2 * half) {
#pragma omp simd
    for (int64_t c = 0; c < half; ++c) {
      y[c] = x[2 * c];
      y[half + c] = x[2 * c + 1];
    }
  }
}

class ShufflePlan final : public Plan {
 public:
  ShufflePlan(const AxisMapSpec& spec, LaneTag tag)
      : Plan("cpu"),
        dtype_(spec.dtype),
        layout_(spec.layout),
        image_(spec.x_shape, tag),
        groups_(spec.first[1]) {
    // Offsets of the channels' sources. The padding's sources are padding, which is zero.
    for (int64_t c = 0; c < image_.blocks * image_.lanes; ++c) {
      const int64_t from = c < image_.channels ? spec.Source(1, c) : c;
      source_.push_back(from / image_.lanes * image_.block_step + from % image_.lanes);
    }
  }
  std::string Describe() const override { return "cpu channels"; }
  LayoutPtr input_layout(size_t) const override { return layout_; }
  LayoutPtr output_layout(size_t) const override { return layout_; }

  void Run(const Execution& execution) const override {
    const int64_t pixels = image_.images * image_.rows() * image_.width;
    SwitchSize(SizeOf(dtype_), [&]<class U>() {
      const U* x = execution.in<U>(0);
      U* y = execution.out<U>(0);
      ParallelFor(pixels, kParallelGrain / image_.channels + 1, [&](int64_t begin, int64_t end) {
        if (image_.blocks == 1) {
          const int64_t at = begin * image_.lanes;
          MovePixels(x + at, end - begin, y + at);
        } else {
          MoveInBlocks(x, begin, end, y);
        }
      });
    });
  }

 private:
  /// Moves pixels that have all their channels side by side.
  template <class U>
  void MovePixels(const U* x, int64_t pixels, U* y) const {
    const bool padded = image_.lanes > image_.channels;
    if (!padded && groups_ == 2) return Interleave(x, pixels, image_.channels / 2, y);
    if (!padded && 2 * groups_ == image_.channels)
      return Separate(x, pixels, image_.channels / 2, y);
    for (int64_t p = 0; p < pixels; ++p, x += image_.lanes, y += image_.lanes)
      for (int64_t c = 0; c < image_.lanes; ++c) y[c] = x[source_[c]];
  }

  /// Moves the pixels [begin, end) of all images.
  template <class U>
  void MoveInBlocks(const U* x, int64_t begin, int64_t end, U* y) const {
    const int64_t size = image_.rows() * image_.width;  // of an image, in pixels
    const int64_t lanes = image_.lanes;
    for (int64_t at = begin; at < end;) {
      const int64_t first = at % size, count = std::min(end - at, size - first);
      const int64_t offset = at / size * image_.image_step + first * lanes;
      for (int64_t block = 0; block < image_.blocks; ++block) {
        const int64_t* source = source_.data() + block * lanes;
        U* to = y + offset + block * image_.block_step;
        const U* from = x + offset;
        for (int64_t p = 0; p < count; ++p, to += lanes, from += lanes)
          for (int64_t c = 0; c < lanes; ++c) to[c] = from[source[c]];
      }
      at += count;
    }
  }

  DType dtype_;
  LayoutPtr layout_;
  Lanes image_;
  int64_t groups_;
  std::vector<int64_t> source_;
};

std::string Refuses(const AxisMapSpec& spec) {
  if (spec.kind != AxisMapKind::kShuffle) return "only shuffled channels stay in a layout";
  if (!spec.layout) return "the plain kernel takes row-major tensors";
  for (int axis = 0; axis < spec.x_shape.rank(); ++axis)
    if (axis != 1 && !spec.IsIdentity(axis)) return "only channels are shuffled in a layout";
  if (spec.x_shape.Count() == 0) return "there is nothing to compute";
  return LaneTagOf(spec.layout, spec.x_shape, spec.dtype) ? "" : "the channels are not innermost";
}

PlanOrReason Make(const AxisMapSpec& spec) {
  return std::make_shared<ShufflePlan>(spec, *LaneTagOf(spec.layout, spec.x_shape, spec.dtype));
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<AxisMapSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cpu
