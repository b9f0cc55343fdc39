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
/// channels of a channels-last layout. A row is the part of a panel of `joined` pixels side by
/// side: two fill a vector where one would fill half of it. Offsets count elements.
struct Panels {
  int64_t channels;
  int64_t panels, width;   // channels of a panel
  int64_t images, pixels;  // rows of one image are consecutive
  int64_t joined;
  int64_t panel_step, image_step, row_step;
  int64_t lanes;   // channels of all panels, including the padding of blocks
  int64_t chunk;   // rows that are summed together
  int64_t chunks;  // number of chunks in a panel

  /// `joined` is 1, or divides the pixels of images in blocks.
  Panels(const Shape& shape, LaneTag tag, int64_t joined_pixels = 1)
      : channels(shape[1]),
        images(shape[0]),
        pixels(shape.Count(2, shape.rank())),
        joined(joined_pixels) {
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
      width = block;
      row_step = joined * width;
      panel_step = pixels * width;
      pixels /= joined;
    }
    panels = (lanes + width - 1) / width;
    image_step = panels * panel_step;
    // Chunks are large enough for a thread, and much larger than their sums.
    constexpr int64_t kMostChunks = 64;
    chunk = std::max({int64_t{2} * kBatchNormRows, kParallelGrain / (joined * width),
                      (rows() + kMostChunks - 1) / kMostChunks});
    chunk = RoundUp(chunk, kBatchNormRows);
    chunks = (rows() + chunk - 1) / chunk;
  }
  int64_t rows() const { return images * pixels; }
  int64_t values() const { return rows() * joined; }  ///< of a channel
  int64_t elements() const { return values() * lanes; }
  int64_t first_channel(int64_t panel) const { return panel * width; }
  /// Valid channels of a panel, and channels including padding.
  int64_t filled(int64_t panel) const { return std::min(width, channels - panel * width); }
  int64_t row_width(int64_t panel) const { return std::min(width, lanes - panel * width); }
  /// Elements of a row, and of the longest one.
  int64_t row_elements(int64_t panel) const { return joined * row_width(panel); }
  int64_t longest_row() const { return joined * width; }

  /// Calls body(offset, rows) for contiguous pieces of rows [begin, end), each at most a tile.
  template <class Body>
  void ForTiles(int64_t panel, int64_t begin, int64_t end, const Body& body) const {
    const int64_t most = row_step == longest_row() ? kBatchNormTile / row_step : 1;
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

// Rows of two pixels of bfloat16, in the loops' order: the lower halves of words of both, then the
// upper ones.

/// [lower, upper], the numbers of n columns, becomes [lower, lower, upper, upper].
inline void Repeat(int64_t n, float* row) {
  const int64_t half = n / 2;
  for (float* to : {row + 3 * half, row + 2 * half}) std::copy_n(row + half, half, to);
  std::copy_n(row, half, row + half);
}
/// The reverse.
inline void TakeRepeated(int64_t n, float* row) { std::copy_n(row + n, n / 2, row + n / 2); }
/// Adds up two sums of both pixels, for n columns.
inline void AddRepeated(int64_t n, double* sums) {
  const int64_t half = n / 2;
  for (int64_t at = 0; at < 2 * n; at += half)
    for (int64_t i = 0; i < half; ++i) sums[at + i] = sums[2 * at + i] + sums[2 * at + half + i];
}

}  // namespace singa::cpu
