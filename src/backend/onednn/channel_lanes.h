#pragma once

// The layouts of images whose innermost axis is the channels or a block of them, for kernels of our
// own that work on what oneDNN's leave behind.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>

#include "backend/onednn/engine.h"
#include "core/round_up.h"

namespace singa::onednn {

/// Channels that our kernels work on at a time on this CPU: 16 with AVX-512, 8 with AVX2, else 4.
inline int64_t VectorLanes() {
#if defined(__x86_64__)
  static const int64_t lanes = __builtin_cpu_supports("avx512f") ? 16
                               : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")
                                   ? 8
                                   : 4;
  return lanes;
#else
  return 4;
#endif
}

using LaneTag = dnnl::memory::format_tag;

/// Steps, in elements, through (N, C, H, W) as nhwc, nChw16c or nChw8c.
struct Lanes {
  int64_t images, channels, height, width;
  int64_t lanes;   ///< channels that lie side by side
  int64_t blocks;  ///< how often, for all channels of an image
  int64_t image_step, block_step, row_step, column_step;

  Lanes(const Shape& shape, LaneTag tag)
      : images(shape[0]), channels(shape[1]), height(shape[2]), width(shape[3]) {
    lanes = tag == LaneTag::nhwc ? channels : tag == LaneTag::nChw8c ? 8 : 16;
    blocks = (channels + lanes - 1) / lanes;
    column_step = lanes;
    row_step = width * lanes;
    block_step = height * row_step;
    image_step = blocks * block_step;
  }
  /// Channels that exist in a block.
  int64_t filled(int64_t block) const { return std::min(lanes, channels - block * lanes); }
};

inline dnnl::memory::desc LaneDesc(const Shape& shape, DType dtype, LaneTag tag) {
  return dnnl::memory::desc(Dims(shape), DataTypeOf(dtype), tag);
}

inline LayoutPtr LaneLayout(const Shape& shape, DType dtype, LaneTag tag) {
  return FromDesc(LaneDesc(shape, dtype, tag), shape, dtype);
}

/// Zeros the channels that only fill up the last block, of which `filled` exist, in one row of its
/// pixels; an element has so many bytes.
inline void ZeroPadding(const Lanes& layout, int64_t filled, void* row, size_t element_bytes) {
  if (filled == layout.lanes) return;
  const auto bytes = static_cast<int64_t>(element_bytes);
  char* padding = static_cast<char*>(row) + filled * bytes;
  const auto missing = static_cast<size_t>((layout.lanes - filled) * bytes);
  for (int64_t w = 0; w < layout.width; ++w)
    std::memset(padding + w * layout.column_step * bytes, 0, missing);
}

/// Which of these layouts it is, if any.
inline std::optional<LaneTag> LaneTagOf(const LayoutPtr& layout, const Shape& shape, DType dtype) {
  if (!AsDnnl(layout) || shape.rank() != 4) return std::nullopt;
  for (LaneTag tag : {LaneTag::nhwc, LaneTag::nChw16c, LaneTag::nChw8c})
    if (SameLayout(layout, LaneLayout(shape, dtype, tag))) return tag;
  return std::nullopt;
}

}  // namespace singa::onednn
