#pragma once

// Convolution by its definition, in float64: the list of its products.

#include <algorithm>
#include <cmath>
#include <vector>

#include "singa/operation/recorder.h"
#include "support.h"

namespace singa::test {

/// Calls product(x, w, y) with the row-major positions of x, W and y for each multiply-add.
template <class Product>
void ForEachProduct(const Recorder& g, const Product& product) {
  const int64_t filters = g.out_channels / g.group, channels = g.in_channels / g.group;
  for (int64_t n = 0; n < g.batchsize; ++n)
    for (int64_t m = 0; m < g.out_channels; ++m)
      for (int64_t oh = 0; oh < g.conv_height; ++oh)
        for (int64_t ow = 0; ow < g.conv_width; ++ow)
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t i = 0; i < g.kernel_h; ++i)
              for (int64_t j = 0; j < g.kernel_w; ++j) {
                const int64_t h = oh * g.stride_h - g.pad_top + i * g.dilation_h;
                const int64_t w = ow * g.stride_w - g.pad_left + j * g.dilation_w;
                if (h < 0 || h >= g.height || w < 0 || w >= g.width) continue;
                const int64_t channel = m / filters * channels + c;
                product(((n * g.in_channels + channel) * g.height + h) * g.width + w,
                        ((m * channels + c) * g.kernel_h + i) * g.kernel_w + j,
                        ((n * g.out_channels + m) * g.conv_height + oh) * g.conv_width + ow);
              }
}

/// Sums of products with what their tolerance needs.
struct Sums {
  std::vector<double> value, magnitude, length;
  explicit Sums(int64_t size) : value(size), magnitude(size), length(size) {}
  void Add(int64_t at, double term) {
    value[at] += term;
    magnitude[at] += std::abs(term);
    length[at] += 1;
  }
};

/// |result − float64| ≤ 8 · eps · √K · (|x| ⋆ |w|), elementwise.
inline void ExpectSums(const Tensor& result, const Shape& shape, const Sums& sums,
                       const std::string& what) {
  ASSERT_EQ(result.shape(), shape) << what;
  const std::vector<double> values = Values(result);
  const double eps = Epsilon(result.data_type());
  for (size_t i = 0; i < values.size(); ++i) {
    const double tolerance =
        8 * eps * std::sqrt(std::max(1.0, sums.length[i])) * sums.magnitude[i] +
        Smallest(result.data_type());
    ASSERT_LE(std::abs(values[i] - sums.value[i]), tolerance)
        << what << "\nelement " << i << ": " << values[i] << " instead of " << sums.value[i];
  }
}

}  // namespace singa::test
