#pragma once

#include <algorithm>
#include <cstdint>

#include "singa/operation/recorder.h"

namespace singa::reference {

/// The range of output positions o for which 0 <= o · stride + offset < size, within [0, count).
struct ValidRange {
  int64_t begin, end;
};
inline ValidRange ValidOutputs(int64_t offset, int64_t stride, int64_t size, int64_t count) {
  const int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t end = size > offset ? (size - offset + stride - 1) / stride : 0;
  return {std::min(begin, count), std::clamp(end, std::min(begin, count), count)};
}

/// Calls segment(column, length, oh, ow) for the pieces of output rows that make up the pixels
/// [p0, p1) of a (conv_height, conv_width) image; `column` counts from p0.
template <class Segment>
void ForEachRowSegment(const Recorder& g, int64_t p0, int64_t p1, const Segment& segment) {
  for (int64_t p = p0; p < p1;) {
    const int64_t oh = p / g.conv_width, ow = p % g.conv_width;
    const int64_t length = std::min(g.conv_width - ow, p1 - p);
    segment(p - p0, length, oh, ow);
    p += length;
  }
}

/// Columns [p0, p1) of the im2col matrix of `channels` channels of one image: row (c, i, j) holds
/// what kernel element (i, j) meets at each output pixel, zero in the padding.
template <class T>
void Im2Col(const Recorder& g, const T* image, int64_t channels, int64_t p0, int64_t p1, T* col) {
  const int64_t columns = p1 - p0;
  for (int64_t c = 0; c < channels; ++c, image += g.height * g.width) {
    for (int64_t i = 0; i < g.kernel_h; ++i) {
      for (int64_t j = 0; j < g.kernel_w; ++j, col += columns) {
        const int64_t offset = j * g.dilation_w - g.pad_left;
        const ValidRange valid = ValidOutputs(offset, g.stride_w, g.width, g.conv_width);
        ForEachRowSegment(g, p0, p1, [&](int64_t column, int64_t length, int64_t oh, int64_t ow) {
          T* out = col + column;
          const int64_t ih = oh * g.stride_h + i * g.dilation_h - g.pad_top;
          const bool inside = ih >= 0 && ih < g.height;
          const int64_t begin = inside ? std::clamp(valid.begin - ow, int64_t{0}, length) : length;
          const int64_t end = inside ? std::clamp(valid.end - ow, begin, length) : length;
          const T* row = image + (inside ? ih * g.width + ow * g.stride_w + offset : 0);
          std::fill(out, out + begin, T(0));
          if (g.stride_w == 1) {
            if (end > begin) std::copy(row + begin, row + end, out + begin);
          } else {
            for (int64_t k = begin; k < end; ++k) out[k] = row[k * g.stride_w];
          }
          std::fill(out + end, out + length, T(0));
        });
      }
    }
  }
}

/// The transpose of Im2Col: adds each element to the pixel that it came from.
template <class T>
void Col2ImAdd(const Recorder& g, const T* col, int64_t channels, int64_t p0, int64_t p1,
               T* image) {
  const int64_t columns = p1 - p0;
  for (int64_t c = 0; c < channels; ++c, image += g.height * g.width) {
    for (int64_t i = 0; i < g.kernel_h; ++i) {
      for (int64_t j = 0; j < g.kernel_w; ++j, col += columns) {
        const int64_t offset = j * g.dilation_w - g.pad_left;
        const ValidRange valid = ValidOutputs(offset, g.stride_w, g.width, g.conv_width);
        ForEachRowSegment(g, p0, p1, [&](int64_t column, int64_t length, int64_t oh, int64_t ow) {
          const T* in = col + column;
          const int64_t ih = oh * g.stride_h + i * g.dilation_h - g.pad_top;
          if (ih < 0 || ih >= g.height) return;
          const int64_t begin = std::clamp(valid.begin - ow, int64_t{0}, length);
          const int64_t end = std::clamp(valid.end - ow, begin, length);
          T* row = image + (ih * g.width + ow * g.stride_w + offset);
          for (int64_t k = begin; k < end; ++k) row[k * g.stride_w] += in[k];
        });
      }
    }
  }
}

}  // namespace singa::reference
