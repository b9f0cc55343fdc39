#include "backend/onednn/average_pooling.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "backend/onednn/channel_lanes.h"
#include "backend/onednn/round_bfloat16.h"
#include "core/parallel.h"
#include "model/operation/pooling_windows.h"
#include "singa/core/half.h"

namespace singa::onednn {
namespace {

// Whatever a loop calls has to become part of it: by itself it would be compiled for the baseline.
#define SINGA_INLINE inline __attribute__((always_inline))

/// Channels that are worked on at a time, in two halves.
constexpr int64_t kGroup = 16;
using Floats __attribute__((vector_size(kGroup / 2 * sizeof(float)))) = float;
using Words __attribute__((vector_size(kGroup / 2 * sizeof(uint32_t)))) = uint32_t;

/// The values of a group: of float32 its first half and its second. Of bfloat16 its even channels
/// and its odd ones: of words of 32 bits, the upper halves are float32 already, and the lower ones
/// after a shift.
struct Group {
  Floats a = {}, b = {};
};

template <class Count>
SINGA_INLINE void Load(const float* from, Count n, Group& group) {
  std::memcpy(static_cast<void*>(&group), from, static_cast<size_t>(n) * sizeof(float));
}
template <class Count>
SINGA_INLINE void Load(const BFloat16* from, Count n, Group& group) {
  Words words = {};
  std::memcpy(&words, from, static_cast<size_t>(n) * sizeof(BFloat16));
  group.a = reinterpret_cast<Floats>(words << 16);
  group.b = reinterpret_cast<Floats>(words & 0xffff0000u);
}

template <class Count>
SINGA_INLINE void Store(const Group& group, Count n, float* to) {
  std::memcpy(to, &group, static_cast<size_t>(n) * sizeof(float));
}
template <class Count>
SINGA_INLINE void Store(const Group& group, Count n, BFloat16* to) {
  Words a, b;
  RoundToBFloat16(group.a, a);
  RoundToBFloat16(group.b, b);
  const Words words = (a >> 16) | (b & 0xffff0000u);
  std::memcpy(static_cast<void*>(to), &words, static_cast<size_t>(n) * sizeof(BFloat16));
}

/// For each position of an axis, the windows that read it.
struct Readers {
  /// The gradients of neighbouring windows lie `step` apart.
  Readers(const WindowAxis& axis, int64_t step) : first(1, 0) {
    const int64_t dilation = axis.kernel() > 1 ? axis.position(0, 1) - axis.position(0, 0) : 1;
    for (int64_t i = 0; i < axis.size(); ++i) {
      for (int64_t o = axis.over(i).first; o < axis.over(i).last; ++o) {
        if ((i - axis.start(o)) % dilation != 0) continue;
        taps.push_back({o * step, 1 / static_cast<float>(std::max<int64_t>(axis.divisor(o), 1))});
      }
      first.push_back(taps.size());
    }
  }

  struct Tap {
    int64_t at;   ///< of the window's gradient
    float share;  ///< in it, along this axis
  };
  struct Range {
    const Tap *begin, *end;
  };
  /// Of position i.
  Range of(int64_t i) const {
    return {taps.data() + first[static_cast<size_t>(i)],
            taps.data() + first[static_cast<size_t>(i) + 1]};
  }

  std::vector<size_t> first;
  std::vector<Tap> taps;
};

struct Geometry {
  Geometry(const PoolingBackwardSpec& spec, LaneTag tag)
      : Geometry(PoolWindows(spec.geometry, spec.mode), spec, tag) {}

  Lanes x, y;
  Readers rows, columns;
  LayoutPtr x_layout, y_layout;

 private:
  Geometry(const PoolWindows& windows, const PoolingBackwardSpec& spec, LaneTag tag)
      : x(spec.geometry.input_shape(), tag),
        y(spec.geometry.output_shape(), tag),
        rows(windows.rows, y.row_step),
        columns(windows.columns, y.column_step),
        x_layout(LaneLayout(spec.geometry.input_shape(), spec.dtype, tag)),
        y_layout(LaneLayout(spec.geometry.output_shape(), spec.dtype, tag)) {}
};

template <class T, class Count>
SINGA_INLINE void SumTaps(const T* dy, Readers::Range rows, Readers::Range columns, Count n,
                          T* dx) {
  Group sum;
  for (const Readers::Tap* row = rows.begin; row != rows.end; ++row) {
    Group part;
    for (const Readers::Tap* column = columns.begin; column != columns.end; ++column) {
      Group gradient;
      Load(dy + row->at + column->at, n, gradient);
      part.a += gradient.a * column->share;
      part.b += gradient.b * column->share;
    }
    sum.a += part.a * row->share;
    sum.b += part.b * row->share;
  }
  Store(sum, n, dx);
}

/// One row of dx, `h`, of one block, of which `filled` channels exist. dy points to the block.
template <class T>
SINGA_MULTI_ISA void GradientRow(const Geometry& g, const T* dy, int64_t h, int64_t filled, T* dx) {
  const Readers::Range rows = g.rows.of(h);
  for (int64_t w = 0; w < g.x.width; ++w, dx += g.x.column_step) {
    const Readers::Range columns = g.columns.of(w);
    int64_t c = 0;
    for (; c + kGroup <= filled; c += kGroup)
      SumTaps(dy + c, rows, columns, std::integral_constant<int64_t, kGroup>(), dx + c);
    if (c < filled) SumTaps(dy + c, rows, columns, filled - c, dx + c);
  }
}

template <class T>
void Gradient(const Geometry& g, const T* dy, T* dx) {
  const auto taps = static_cast<int64_t>(g.columns.taps.size()) / g.x.width + 1;
  const int64_t work = g.x.row_step * (taps * taps + 1);
  ParallelFor(g.x.images * g.x.blocks * g.x.height, kParallelGrain / (work + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t block = i / g.x.height, h = i % g.x.height;
                  const int64_t filled = g.x.filled(block % g.x.blocks);
                  T* row = dx + block * g.x.block_step + h * g.x.row_step;
                  GradientRow(g, dy + block * g.y.block_step, h, filled, row);
                  ZeroPadding(g.x, filled, row, sizeof(T));
                }
              });
}

class AverageGradientPlan final : public Plan {
 public:
  AverageGradientPlan(const PoolingBackwardSpec& spec, LaneTag tag)
      : Plan("onednn"), geometry_(spec, tag), dtype_(spec.dtype) {}
  void Run(const Execution& execution) const override {
    if (dtype_ == kBFloat16) {
      Gradient(geometry_, execution.in<BFloat16>(0), execution.out<BFloat16>(0));
    } else {
      Gradient(geometry_, execution.in<float>(0), execution.out<float>(0));
    }
  }
  std::string Describe() const override { return "onednn layout, own average"; }
  LayoutPtr input_layout(size_t i) const override {
    return i == 0 ? geometry_.y_layout : geometry_.x_layout;
  }
  LayoutPtr output_layout(size_t) const override { return geometry_.x_layout; }

 private:
  Geometry geometry_;
  DType dtype_;
};

/// How dx is to lie: as x, or without it as dy.
std::optional<LaneTag> TagOf(const PoolingBackwardSpec& spec) {
  if (spec.x_layout) return LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype);
  return LaneTagOf(spec.dy_layout, spec.geometry.output_shape(), spec.dtype);
}

}  // namespace

std::string RefusesAverageGradient(const PoolingBackwardSpec& spec) {
  if (std::string reason = RefusesOwn(spec.dtype); !reason.empty()) return reason;
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  return TagOf(spec) ? "" : "the channels are not innermost";
}

PlanPtr MakeAverageGradient(const PoolingBackwardSpec& spec) {
  return std::make_shared<AverageGradientPlan>(spec, *TagOf(spec));
}

}  // namespace singa::onednn
