#include "backend/cpu/pooling/average.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <type_traits>
#include <vector>

#include "backend/cpu/vector.h"
#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/pooling/windows.h"
#include "singa/core/half.h"

namespace singa::cpu {
namespace {

// A loop's callees must be inlined; on their own, they would be compiled for the baseline.

/// Channels that are processed together, in two halves.
constexpr int64_t kGroup = 16;
using Floats __attribute__((vector_size(kGroup / 2 * sizeof(float)))) = float;
using Words __attribute__((vector_size(kGroup / 2 * sizeof(uint32_t)))) = uint32_t;

/// The values of a group. For float32, `a` is the first half and `b` the second. For bfloat16, `a`
/// and `b` are the even and odd channels: a word of 32 bits holds two, of which the upper half is a
/// float32 in place, and the lower half is one after a shift.
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

/// For each result along an axis, the elements that it sums. In forward those are the elements of a
/// window, in backward the gradients of the windows that cover an element.
struct Summands {
  struct Tap {
    int64_t at;   ///< offset of the element
    float share;  ///< by which it is multiplied
  };
  struct Range {
    const Tap *begin, *end;
  };
  /// The summands of result i.
  Range of(int64_t i) const {
    return {taps.data() + first[static_cast<size_t>(i)],
            taps.data() + first[static_cast<size_t>(i) + 1]};
  }
  void Add(int64_t at, int64_t divisor) {
    taps.push_back({at, 1 / static_cast<float>(std::max<int64_t>(divisor, 1))});
  }
  /// The next Add is for the next result.
  void Next() { first.push_back(taps.size()); }

  std::vector<size_t> first = {0};
  std::vector<Tap> taps;
};

/// Neighbouring elements of x are `step` apart.
Summands OfWindows(const WindowAxis& axis, int64_t step) {
  Summands summands;
  for (int64_t o = 0; o < axis.windows(); ++o, summands.Next())
    for (int64_t k = axis.taps(o).first; k < axis.taps(o).last; ++k)
      summands.Add(axis.position(o, k) * step, axis.divisor(o));
  return summands;
}

/// Gradients of neighbouring windows are `step` apart.
Summands OfElements(const WindowAxis& axis, int64_t step) {
  Summands summands;
  for (int64_t i = 0; i < axis.size(); ++i, summands.Next())
    for (int64_t o = axis.over(i).first; o < axis.over(i).last; ++o)
      if ((i - axis.start(o)) % axis.dilation() == 0) summands.Add(o * step, axis.divisor(o));
  return summands;
}

/// The sums that turn x into y, or dy into dx.
struct Geometry {
  Geometry(const PoolingForwardSpec& spec, LaneTag tag)
      : Geometry(PoolWindows(spec.geometry, spec.mode), OfWindows, spec.geometry.input_shape(),
                 spec.geometry.output_shape(), spec.dtype, tag) {}
  Geometry(const PoolingBackwardSpec& spec, LaneTag tag)
      : Geometry(PoolWindows(spec.geometry, spec.mode), OfElements, spec.geometry.output_shape(),
                 spec.geometry.input_shape(), spec.dtype, tag) {}

  Lanes from, to;
  Summands planes, rows, columns;
  LayoutPtr from_layout, to_layout;

 private:
  template <class Sums>
  Geometry(const PoolWindows& windows, const Sums& sums, const Shape& from_shape,
           const Shape& to_shape, DType dtype, LaneTag tag)
      : from(from_shape, tag),
        to(to_shape, tag),
        planes(sums(windows.planes, from.plane_step)),
        rows(sums(windows.rows, from.row_step)),
        columns(sums(windows.columns, from.column_step)),
        from_layout(LaneLayout(from_shape, dtype, tag)),
        to_layout(LaneLayout(to_shape, dtype, tag)) {}
};

template <class T, class Count>
SINGA_INLINE void SumTaps(const T* from, Summands::Range planes, Summands::Range rows,
                          Summands::Range columns, Count n, T* to) {
  Group sum;
  for (const Summands::Tap* plane = planes.begin; plane != planes.end; ++plane) {
    for (const Summands::Tap* row = rows.begin; row != rows.end; ++row) {
      const T* start = from + plane->at + row->at;
      const float share = plane->share * row->share;
      Group part;
      for (const Summands::Tap* column = columns.begin; column != columns.end; ++column) {
        Group value;
        Load(start + column->at, n, value);
        part.a += value.a * column->share;
        part.b += value.b * column->share;
      }
      sum.a += part.a * share;
      sum.b += part.b * share;
    }
  }
  Store(sum, n, to);
}

/// One row of results of one block with `filled` valid channels. `from` points to the block.
template <class T>
SINGA_MULTI_ISA void SumRow(const Geometry& g, const T* from, int64_t plane, int64_t row,
                            int64_t filled, T* to) {
  const Summands::Range planes = g.planes.of(plane), rows = g.rows.of(row);
  for (int64_t w = 0; w < g.to.width; ++w, to += g.to.column_step) {
    const Summands::Range columns = g.columns.of(w);
    int64_t c = 0;
    for (; c + kGroup <= filled; c += kGroup)
      SumTaps(from + c, planes, rows, columns, std::integral_constant<int64_t, kGroup>(), to + c);
    if (c < filled) SumTaps(from + c, planes, rows, columns, filled - c, to + c);
  }
}

template <class T>
void Sum(const Geometry& g, const T* from, T* to) {
  const auto taps = static_cast<int64_t>(g.columns.taps.size()) / g.to.width + 1;
  const int64_t work = g.to.row_step * (taps * taps + 1), rows = g.to.rows();
  ParallelFor(g.to.images * g.to.blocks * rows, kParallelGrain / (work + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t block = i / rows, at = i % rows;
                  const int64_t filled = g.to.filled(block % g.to.blocks);
                  T* row = to + block * g.to.block_step + at * g.to.row_step;
                  SumRow(g, from + block * g.from.block_step, at / g.to.height, at % g.to.height,
                         filled, row);
                  ZeroPadding(g.to, filled, row, sizeof(T));
                }
              });
}

class AveragePlan final : public Plan {
 public:
  template <class Spec>
  AveragePlan(const Spec& spec, LaneTag tag)
      : Plan("cpu"), geometry_(spec, tag), dtype_(spec.dtype) {}
  void Run(const Execution& execution) const override {
    if (dtype_ == kBFloat16) {
      Sum(geometry_, execution.in<BFloat16>(0), execution.out<BFloat16>(0));
    } else {
      Sum(geometry_, execution.in<float>(0), execution.out<float>(0));
    }
  }
  std::string Describe() const override { return "cpu average"; }
  LayoutPtr input_layout(size_t) const override { return geometry_.from_layout; }
  LayoutPtr output_layout(size_t) const override { return geometry_.to_layout; }

 private:
  Geometry geometry_;
  DType dtype_;
};

std::optional<LaneTag> TagOf(const PoolingForwardSpec& spec) {
  return LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype);
}
/// The layout of dx: that of x, or without x that of dy.
std::optional<LaneTag> TagOf(const PoolingBackwardSpec& spec) {
  if (spec.x_layout) return LaneTagOf(spec.x_layout, spec.geometry.input_shape(), spec.dtype);
  return LaneTagOf(spec.dy_layout, spec.geometry.output_shape(), spec.dtype);
}

template <class Spec>
std::string Refuses(const Spec& spec) {
  if (std::string reason = RefusesStorage(spec.dtype); !reason.empty()) return reason;
  if (spec.geometry.batchsize == 0) return "there is nothing to compute";
  return TagOf(spec) ? "" : "the channels are not innermost";
}

}  // namespace

std::string RefusesAverage(const PoolingForwardSpec& spec) { return Refuses(spec); }
std::string RefusesAverage(const PoolingBackwardSpec& spec) { return Refuses(spec); }
PlanPtr MakeAverage(const PoolingForwardSpec& spec) {
  return std::make_shared<AveragePlan>(spec, *TagOf(spec));
}
PlanPtr MakeAverage(const PoolingBackwardSpec& spec) {
  return std::make_shared<AveragePlan>(spec, *TagOf(spec));
}

}  // namespace singa::cpu
