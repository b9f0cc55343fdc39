#pragma once

// Layouts of images whose innermost axis is the channels or a block of channels.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "core/device/instruction_set.h"
#include "core/layout/blocked_layout.h"
#include "core/tensor/round_up.h"

namespace singa {

/// Number of channels that our kernels process at once: 16 with AVX-512, 8 with AVX2, 8 in two
/// registers with NEON, else 4.
inline int64_t VectorLanes() {
#if defined(__aarch64__)
  return 8;
#else
  const InstructionSet set = AllowedInstructionSet();
  return set >= InstructionSet::kAvx512 ? 16 : set >= InstructionSet::kAvx2 ? 8 : 4;
#endif
}

/// Channels-last, or blocks of 8 or 16 channels. Images of one and three dimensions have the same
/// layouts: nwc and nCw16c, ndhwc and nCdhw16c.
enum class LaneTag { kNhwc, kNChw8c, kNChw16c };

/// Channels in a block; 1 for channels-last images, which have no blocks.
constexpr int64_t BlockOf(LaneTag tag) {
  return tag == LaneTag::kNhwc ? 1 : tag == LaneTag::kNChw8c ? 8 : 16;
}

/// Whether a tensor of this shape is an image: (N, C, L), (N, C, H, W) or (N, C, D, H, W).
inline bool IsImage(const Shape& shape) { return shape.rank() >= 3 && shape.rank() <= 5; }

/// Sizes and strides, in elements, of an image in the layout of a LaneTag. Axes that it lacks have
/// length 1.
struct Lanes {
  int64_t images, channels, depth, height, width;
  int64_t lanes;   ///< channels in a block
  int64_t blocks;  ///< blocks of channels in an image
  int64_t image_step, block_step, plane_step, row_step, column_step;

  Lanes(const Shape& shape, LaneTag tag)
      : images(shape[0]),
        channels(shape[1]),
        depth(shape.rank() > 4 ? shape[2] : 1),
        height(shape.rank() > 3 ? shape[shape.rank() - 2] : 1),
        width(shape.back()) {
    lanes = tag == LaneTag::kNhwc ? channels : BlockOf(tag);
    blocks = CeilDivide(channels, lanes);
    column_step = lanes;
    row_step = width * lanes;
    plane_step = height * row_step;
    block_step = depth * plane_step;
    image_step = blocks * block_step;
  }
  int64_t rows() const { return depth * height; }  ///< of all planes
  /// Number of channels in `block` without the padding.
  int64_t filled(int64_t block) const { return std::min(lanes, channels - block * lanes); }
};

/// Null if the layout equals row-major: for nhwc with one channel or one pixel.
inline LayoutPtr LaneLayout(const Shape& shape, DType dtype, LaneTag tag) {
  std::vector<int> order = {0, 1};
  for (int axis = 2; axis < shape.rank(); ++axis) order.push_back(axis);
  if (tag != LaneTag::kNhwc)
    return MakeBlockedLayout(Placement::Of(shape, order, {{1, BlockOf(tag)}}), dtype);
  std::rotate(order.begin() + 1, order.begin() + 2, order.end());
  return MakeBlockedLayout(Placement::Of(shape, order), dtype);
}

/// Zeros the padding channels of a block with `filled` channels, in one row of pixels.
inline void ZeroPadding(const Lanes& layout, int64_t filled, void* row, size_t element_bytes) {
  if (filled == layout.lanes) return;
  const auto bytes = static_cast<int64_t>(element_bytes);
  char* padding = static_cast<char*>(row) + filled * bytes;
  const auto missing = static_cast<size_t>((layout.lanes - filled) * bytes);
  for (int64_t w = 0; w < layout.width; ++w)
    std::memset(padding + w * layout.column_step * bytes, 0, missing);
}

/// The layouts of all LaneTags.
inline std::vector<LayoutPtr> LaneLayouts(const Shape& shape, DType dtype) {
  std::vector<LayoutPtr> layouts;
  for (const LaneTag tag : {LaneTag::kNhwc, LaneTag::kNChw8c, LaneTag::kNChw16c})
    layouts.push_back(LaneLayout(shape, dtype, tag));
  return layouts;
}

/// The tag of `layout`, if it is one of LaneLayouts.
inline std::optional<LaneTag> LaneTagOf(const LayoutPtr& layout, const Shape& shape, DType dtype) {
  if (!AsBlocked(layout) || !IsImage(shape)) return std::nullopt;
  for (LaneTag tag : {LaneTag::kNhwc, LaneTag::kNChw16c, LaneTag::kNChw8c})
    if (SameLayout(layout, LaneLayout(shape, dtype, tag))) return tag;
  return std::nullopt;
}

}  // namespace singa
