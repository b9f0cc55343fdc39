#pragma once

// Transformed filters. They are several times as large as the filter itself, so a plan transforms
// them as it goes, unless the weights stay and the values fit into the second level cache.

#include <algorithm>
#include <cstdint>

#include "backend/onednn/winograd_tiles.h"
#include "singa/core/layout.h"

namespace singa::onednn::winograd {

/// How they lie: panel by panel of results, [position][depth][column].
template <int64_t kLanes, class Taps>
struct FilterPanels {
  static constexpr int64_t kWidth = 2 * kLanes;  // columns of a product that are computed together

  /// `turned`: the filter that takes gradients of outputs to gradients of inputs.
  FilterPanels(int64_t depth, int64_t columns, bool turned)
      : depth(depth),
        columns(columns),
        turned(turned),
        count((columns + kWidth - 1) / kWidth),
        position_step(depth * kWidth + kLanes),
        size(Taps::kPositions * position_step) {}

  /// Columns of a panel, those that fill its last vector included.
  int64_t width(int64_t panel) const {
    return std::min(kWidth, RoundUp(columns - panel * kWidth, kLanes));
  }
  size_t bytes() const { return static_cast<size_t>(count * size) * sizeof(float); }
  void Transform(int64_t panel, const float* weights, float* values) const {
    constexpr int64_t kWeights = Taps::kWeights;
    const int64_t lane_step = turned ? kWeights : depth * kWeights,
                  depth_step = turned ? columns * kWeights : kWeights;
    for (int64_t lane = 0; lane < width(panel); lane += kLanes) {
      const int64_t first = panel * kWidth + lane;
      Kernels<kLanes, Taps>::TransformFilter(
          {depth, lane_step, depth_step, std::min(kLanes, columns - first), turned},
          weights + first * lane_step, values + lane, position_step, width(panel));
    }
  }

  int64_t depth, columns;
  bool turned;
  int64_t count;
  int64_t position_step;  // from one position of a panel to the next
  int64_t size;           // of a panel
};

/// Whether a transformed filter (out, in, down, across) is to be kept: it is square and small.
bool FitsPrepared(const Shape& filter, int64_t lanes);
/// The layout of a filter that lies transformed, as FilterPanels says. What is made plain again
/// differs by rounding.
LayoutPtr PreparedLayout(const Shape& filter, int64_t lanes);

}  // namespace singa::onednn::winograd
