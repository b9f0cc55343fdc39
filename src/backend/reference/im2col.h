#pragma once

#include <algorithm>
#include <cstdint>

#include "singa/operation/recorder.h"

namespace singa::reference {

/// The range of output positions o in [0, count) with 0 <= o · stride + offset < size.
struct ValidRange {
  int64_t begin, end;
};
inline ValidRange ValidOutputs(int64_t offset, int64_t stride, int64_t size, int64_t count) {
  const int64_t begin = offset >= 0 ? 0 : (-offset + stride - 1) / stride;
  const int64_t end = size > offset ? (size - offset + stride - 1) / stride : 0;
  return {std::min(begin, count), std::clamp(end, std::min(begin, count), count)};
}

/// A segment of a row of output pixels under one element of the kernel.
struct Segment {
  int64_t column;  ///< of its first output, counted from p0
  int64_t length;
  /// For the outputs [begin, end) of the segment the element lies inside the input. Output k reads
  /// pixel source + k · stride_w of a channel.
  int64_t begin, end, source;
};

/// Calls body(segment) for the segments of rows that make up the output pixels [p0, p1), for the
/// kernel element (d, i, j).
template <class Body>
void ForEachSegment(const Recorder& g, int64_t d, int64_t i, int64_t j, int64_t p0, int64_t p1,
                    const Body& body) {
  const int64_t offset = j * g.dilation_w() - g.pad_left();
  const ValidRange valid = ValidOutputs(offset, g.stride_w(), g.width(), g.conv_width());
  for (int64_t p = p0; p < p1;) {
    const int64_t row = p / g.conv_width(), ow = p % g.conv_width();
    const int64_t od = row / g.conv_height(), oh = row % g.conv_height();
    const int64_t id = od * g.stride_d() + d * g.dilation_d() - g.pad_front();
    const int64_t ih = oh * g.stride_h() + i * g.dilation_h() - g.pad_top();
    const bool inside = id >= 0 && id < g.depth() && ih >= 0 && ih < g.height();
    Segment s;
    s.column = p - p0;
    s.length = std::min(g.conv_width() - ow, p1 - p);
    s.begin = inside ? std::clamp(valid.begin - ow, int64_t{0}, s.length) : s.length;
    s.end = inside ? std::clamp(valid.end - ow, s.begin, s.length) : s.length;
    s.source = inside ? (id * g.height() + ih) * g.width() + ow * g.stride_w() + offset : 0;
    body(s);
    p += s.length;
  }
}

/// Calls body(d, i, j) for the elements of a kernel.
template <class Body>
void ForEachTap(const Recorder& g, const Body& body) {
  for (int64_t d = 0; d < g.kernel_d(); ++d)
    for (int64_t i = 0; i < g.kernel_h(); ++i)
      for (int64_t j = 0; j < g.kernel_w(); ++j) body(d, i, j);
}

/// Columns [p0, p1) of the im2col matrix for `channels` channels of one image. Row (c, d, i, j)
/// holds the input under kernel element (d, i, j) for each output pixel; padding is zero.
template <class T>
void Im2Col(const Recorder& g, const T* image, int64_t channels, int64_t p0, int64_t p1, T* col) {
  for (int64_t c = 0; c < channels; ++c, image += g.pixels()) {
    ForEachTap(g, [&](int64_t d, int64_t i, int64_t j) {
      ForEachSegment(g, d, i, j, p0, p1, [&](const Segment& s) {
        T* out = col + s.column;
        const T* row = image + s.source;
        std::fill(out, out + s.begin, T(0));
        if (g.stride_w() == 1) {
          if (s.end > s.begin) std::copy(row + s.begin, row + s.end, out + s.begin);
        } else {
          for (int64_t k = s.begin; k < s.end; ++k) out[k] = row[k * g.stride_w()];
        }
        std::fill(out + s.end, out + s.length, T(0));
      });
      col += p1 - p0;
    });
  }
}

/// The transpose of Im2Col: adds each element to its source pixel.
template <class T>
void Col2ImAdd(const Recorder& g, const T* col, int64_t channels, int64_t p0, int64_t p1,
               T* image) {
  for (int64_t c = 0; c < channels; ++c, image += g.pixels()) {
    ForEachTap(g, [&](int64_t d, int64_t i, int64_t j) {
      ForEachSegment(g, d, i, j, p0, p1, [&](const Segment& s) {
        const T* in = col + s.column;
        T* row = image + s.source;
        for (int64_t k = s.begin; k < s.end; ++k) row[k * g.stride_w()] += in[k];
      });
      col += p1 - p0;
    });
  }
}

}  // namespace singa::reference
