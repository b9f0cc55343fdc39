#pragma once

// Convolution by its definition, in float64, as the list of its products.

#include <algorithm>

#include "model/operation/conv/spec.h"
#include "singa/operation/activation.h"
#include "singa/operation/recorder.h"
#include "support.h"

namespace singa::test {

/// Calls product(x, w, y) with the row-major positions of x, W and y for each multiply-add.
template <class Product>
void ForEachProduct(const Recorder& g, const Product& product) {
  const int64_t filters = g.out_channels / g.group, channels = g.in_channels / g.group;
  for (int64_t n = 0; n < g.batchsize; ++n)
    for (int64_t m = 0; m < g.out_channels; ++m)
      for (int64_t od = 0; od < g.conv_depth(); ++od)
        for (int64_t oh = 0; oh < g.conv_height(); ++oh)
          for (int64_t ow = 0; ow < g.conv_width(); ++ow)
            for (int64_t c = 0; c < channels; ++c)
              for (int64_t k = 0; k < g.kernel_d(); ++k)
                for (int64_t i = 0; i < g.kernel_h(); ++i)
                  for (int64_t j = 0; j < g.kernel_w(); ++j) {
                    const int64_t d = od * g.stride_d() - g.pad_front() + k * g.dilation_d();
                    const int64_t h = oh * g.stride_h() - g.pad_top() + i * g.dilation_h();
                    const int64_t w = ow * g.stride_w() - g.pad_left() + j * g.dilation_w();
                    if (d < 0 || d >= g.depth() || h < 0 || h >= g.height() || w < 0 ||
                        w >= g.width())
                      continue;
                    const int64_t x = n * g.in_channels + m / filters * channels + c;
                    const int64_t y = (n * g.out_channels + m) * g.conv_depth() + od;
                    const int64_t tap = (m * channels + c) * g.kernel_d() + k;
                    product(((x * g.depth() + d) * g.height() + h) * g.width() + w,
                            (tap * g.kernel_h() + i) * g.kernel_w() + j,
                            (y * g.conv_height() + oh) * g.conv_width() + ow);
                  }
}

/// Numbers in [low, high], one for each of `axes`.
inline std::vector<int64_t> Numbers(Random& random, int axes, int64_t low, int64_t high) {
  std::vector<int64_t> numbers;
  for (int i = 0; i < axes; ++i) numbers.push_back(random.Int(low, high));
  return numbers;
}

/// Sums of products, with the sum of magnitudes and the number of terms for the tolerance.
struct Sums {
  Vector value, magnitude, length;
  explicit Sums(int64_t size) : value(size), magnitude(size), length(size) {}
  void Add(int64_t at, double term) {
    value[at] += term;
    magnitude[at] += std::abs(term);
    length[at] += 1;
  }
};

/// Applies an activation. A gate has slopes of up to 3/2, so errors grow as much.
inline void Activate(const Activation& activation, Sums* sums) {
  for (size_t i = 0; i < sums->value.size(); ++i) {
    double& v = sums->value[i];
    switch (activation.kind) {
      case ActivationKind::kRelu:
        v = std::max(v, 0.0);
        break;
      case ActivationKind::kClip:
        v = std::clamp(v, activation.low, activation.high);
        break;
      case ActivationKind::kHardSwish:
        v *= std::clamp(v + 3, 0.0, 6.0) / 6;
        sums->magnitude[i] *= 1.5;
        break;
      case ActivationKind::kSilu:
        v /= 1 + std::exp(-v);
        sums->magnitude[i] *= 1.5;
        break;
      default:
        break;
    }
  }
}

/// Calls visit(y, channel) with the row-major position of each output and its channel.
template <class Visit>
void ForEachOutput(const Recorder& g, const Visit& visit) {
  for (int64_t y = 0; y < g.output_shape().Count(); ++y)
    visit(y, y / g.conv_pixels() % g.out_channels);
}

/// The sums of each pass. Without a bias, b is not read.
struct PassSums {
  Sums y, dx, dw, db;
  PassSums(const Recorder& g, const Tensor& x, const Tensor& w, const Tensor& b, const Tensor& dy)
      : y(g.output_shape().Count()),
        dx(g.input_shape().Count()),
        dw(g.weight_shape().Count()),
        db(g.out_channels) {
    const Vector xs = Values(x), ws = Values(w), dys = Values(dy);
    const Vector bs = g.bias && !b.empty() ? Values(b) : Vector();
    ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) {
      y.Add(yi, xs[xi] * ws[wi]);
      dx.Add(xi, dys[yi] * ws[wi]);
      dw.Add(wi, dys[yi] * xs[xi]);
    });
    ForEachOutput(g, [&](int64_t yi, int64_t channel) {
      if (!bs.empty()) y.Add(yi, bs[channel]);
      db.Add(channel, dys[yi]);
    });
  }
};

/// The sums of a forward pass, with its bias, addition and activation.
inline Sums ForwardSums(const ConvSpec& spec, const std::vector<Tensor>& inputs) {
  const Recorder& g = spec.geometry;
  Sums y(g.output_shape().Count());
  const Vector xs = Values(inputs[0]), ws = Values(inputs[1]);
  const Vector bs = g.bias ? Values(inputs[2]) : Vector();
  const Vector adds = spec.has_add ? Values(inputs[spec.add_input()]) : Vector();
  ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) { y.Add(yi, xs[xi] * ws[wi]); });
  ForEachOutput(g, [&](int64_t yi, int64_t channel) {
    if (g.bias) y.Add(yi, bs[channel]);
    if (spec.has_add) y.Add(yi, adds[yi]);
  });
  Activate(spec.activation, &y);
  return y;
}

/// None, or one that a convolution may have.
inline Activation AnyActivation(Random& random) {
  const Activation activations[] = {{},
                                    true,
                                    {ActivationKind::kClip, 0, 1.5},
                                    {ActivationKind::kClip, -0.5, 1},
                                    ActivationKind::kHardSwish,
                                    ActivationKind::kSilu};
  return activations[random.Int(0, 5)];
}

/// Expects |result − float64| ≤ 8 · eps · √K · (|x| ⋆ |w|) elementwise, with K terms in a sum.
inline void ExpectSums(const Tensor& result, const Shape& shape, const Sums& sums,
                       const std::string& what) {
  ASSERT_EQ(result.shape(), shape) << what;
  const Vector values = Values(result);
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
