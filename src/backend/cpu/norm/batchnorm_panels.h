#pragma once

// How batch normalisation and bias gradients divide their tensors: into panels, chunks, and tiles
// of rows.

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/norm/batchnorm_loops.h"
#include "core/device/parallel.h"
#include "core/layout/channel_lanes.h"
#include "singa/core/half.h"
#include "singa/core/shape.h"

namespace singa::cpu {

/// Floats of padding between arrays. With strides of a power of two they would map to the same few
/// cache sets, and loads would wait for stores with equal low address bits.
inline constexpr int64_t kApart = 80;
using Buffer = std::array<float, kBatchNormTile + kApart>;

/// x as panels of rows. A panel is a block of channels of a blocked layout, or (up to a limit) all
/// channels of a channels-last layout. A row is one pixel's part of a panel. Offsets count
/// elements.
struct Panels {
  int64_t channels;
  int64_t panels, width;
  int64_t images, pixels;  // rows of one image are consecutive
  int64_t panel_step, image_step, row_step;
  int64_t lanes;   // channels of all panels, including the padding of blocks
  int64_t chunk;   // rows that are summed together
  int64_t chunks;  // number of chunks in a panel

  Panels(const Shape& shape, LaneTag tag)
      : channels(shape[1]), images(shape[0]), pixels(shape.Count(2, shape.rank())) {
    const int64_t block = BlockOf(tag);
    lanes = RoundUp(channels, block);
    if (block == 1 || pixels == 1) {  // blocks of a single pixel are contiguous
      // With few rows, threads divide the channels.
      width = std::min(lanes, images * pixels > 2 * kBatchNormRows ? kBatchNormTile : 256);
      panel_step = width;
      row_step = lanes;
      pixels *= images;
      images = 1;
    } else {
      width = row_step = block;
      panel_step = pixels * width;
    }
    panels = (lanes + width - 1) / width;
    image_step = panels * panel_step;
    // Chunks are large enough for a thread, and much larger than their sums.
    constexpr int64_t kMostChunks = 64;
    chunk = std::max({int64_t{2} * kBatchNormRows, kParallelGrain / width,
                      (rows() + kMostChunks - 1) / kMostChunks});
    chunk = RoundUp(chunk, kBatchNormRows);
    chunks = (rows() + chunk - 1) / chunk;
  }
  int64_t rows() const { return images * pixels; }
  int64_t elements() const { return rows() * lanes; }
  int64_t first_channel(int64_t panel) const { return panel * width; }
  /// Valid channels of a panel, and channels including padding.
  int64_t filled(int64_t panel) const { return std::min(width, channels - panel * width); }
  int64_t row_width(int64_t panel) const { return std::min(width, lanes - panel * width); }

  /// Calls body(offset, rows) for contiguous pieces of rows [begin, end), each at most a tile.
  template <class Body>
  void ForTiles(int64_t panel, int64_t begin, int64_t end, const Body& body) const {
    const int64_t most = row_step == width ? kBatchNormTile / width : 1;
    while (begin < end) {
      const int64_t image = begin / pixels, pixel = begin % pixels;
      const int64_t n = std::min({most, end - begin, pixels - pixel});
      body(panel * panel_step + image * image_step + pixel * row_step, n);
      begin += n;
    }
  }
  /// Calls body(begin, end) for the rows of a chunk, at most kBatchNormRows at a time.
  template <class Body>
  void ForRows(int64_t index, const Body& body) const {
    const int64_t end = std::min(rows(), (index + 1) * chunk);
    for (int64_t row = index * chunk; row < end; row += kBatchNormRows)
      body(row, std::min(end, row + kBatchNormRows));
  }
};

/// The elements of a row of n as float32 in the loops' order: in place, or a copy in `buffer`.
inline const float* Floats(const float* row, int64_t, Buffer&) { return row; }
inline const float* Floats(const BFloat16* row, int64_t n, Buffer& buffer) {
  float *lower = buffer.data(), *upper = lower + n / 2;
  for (int64_t w = 0; w < n / 2; ++w) {
    lower[w] = static_cast<float>(row[2 * w]);
    upper[w] = static_cast<float>(row[2 * w + 1]);
  }
  if (n % 2) buffer[static_cast<size_t>(n - 1)] = static_cast<float>(row[n - 1]);
  return buffer.data();
}

/// Converts the numbers of a row's n columns to the loops' order for T, and back.
template <class T>
void ToLoopOrder(int64_t n, float* row) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    Buffer copy;
    std::copy_n(row, n, copy.begin());
    for (int64_t w = 0; w < n / 2; ++w) {
      row[w] = copy[static_cast<size_t>(2 * w)];
      row[n / 2 + w] = copy[static_cast<size_t>(2 * w + 1)];
    }
  }
}
template <class T>
void FromLoopOrder(int64_t n, float* row) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    Buffer copy;
    std::copy_n(row, n, copy.begin());
    for (int64_t w = 0; w < n / 2; ++w) {
      row[2 * w] = copy[static_cast<size_t>(w)];
      row[2 * w + 1] = copy[static_cast<size_t>(n / 2 + w)];
    }
  }
}

}  // namespace singa::cpu
