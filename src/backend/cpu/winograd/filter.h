#pragma once

// Transformed filters. They are several times as large as the filter, so a plan transforms them in
// each call, unless the weights are constant and the values fit in the L2 cache.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/winograd/tiles.h"
#include "singa/core/layout.h"

namespace singa::cpu::winograd {

/// Layout of a transformed filter of T: panels of results, each [position][depth][column].
template <class T, int64_t kLanes>
struct FilterPanels {
  static constexpr int64_t kWidth = 2 * kLanes;  // columns that a product computes together

  /// `turned`: transposed and rotated, for the gradient of the input.
  FilterPanels(const Loops<T, kLanes>& loops, int64_t depth, int64_t columns, bool turned)
      : loops(loops),
        depth(depth),
        columns(columns),
        turned(turned),
        count((columns + kWidth - 1) / kWidth),
        position_step(depth * kWidth + kLanes),
        size(loops.positions * position_step) {}

  /// Columns of a panel, including the padding of its last vector.
  int64_t width(int64_t panel) const {
    return std::min(kWidth, RoundUp(columns - panel * kWidth, kLanes));
  }
  size_t bytes() const { return static_cast<size_t>(count * size) * sizeof(float); }
  void Transform(int64_t panel, const T* weights, float* values) const {
    Transform(panel, 0, depth, weights, values, position_step);
  }
  /// The same for `count` channels from `first` on.
  void Transform(int64_t panel, int64_t first, int64_t count, const T* weights, float* values,
                 int64_t step) const {
    const int64_t weights_each = loops.weights;
    const int64_t lane_step = turned ? weights_each : depth * weights_each,
                  depth_step = turned ? columns * weights_each : weights_each;
    for (int64_t lane = 0; lane < width(panel); lane += kLanes) {
      const int64_t result = panel * kWidth + lane;
      loops.transform_filter(
          {count, lane_step, depth_step, std::min(kLanes, columns - result), turned},
          weights + result * lane_step + first * depth_step, values + lane, step, width(panel));
    }
  }

  Loops<T, kLanes> loops;
  int64_t depth, columns;
  bool turned;
  int64_t count;
  int64_t position_step;  // between positions of a panel
  int64_t size;           // of a panel
};

/// Whether to keep a transformed filter (out, in, down, across): if it is square and small.
bool FitsPrepared(const Shape& filter, int64_t lanes);
/// The layout of a transformed filter (FilterPanels). Converting to it and back to plain changes
/// weights by rounding.
LayoutPtr PreparedLayout(const Shape& filter, int64_t lanes);

}  // namespace singa::cpu::winograd
