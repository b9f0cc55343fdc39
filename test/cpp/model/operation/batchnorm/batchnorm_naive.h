#pragma once

// Batch normalisation by its definition, in float64.

#include <cmath>
#include <vector>

#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa::test {

inline DType Statistics(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

/// (N, C, ...) as channels of values.
struct Layout {
  explicit Layout(const Shape& shape)
      : batch(shape[0]), channels(shape[1]), spatial(shape.Count(2, shape.rank())) {}
  int64_t batch, channels, spatial;
  int64_t count() const { return batch * spatial; }
  /// visit(flat position) for each value of a channel.
  template <class F>
  void ForChannel(int64_t c, const F& visit) const {
    for (int64_t n = 0; n < batch; ++n)
      for (int64_t s = 0; s < spatial; ++s)
        visit(static_cast<size_t>((n * channels + c) * spatial + s));
  }
};

/// The definition in double, and how far an implementation in the statistics' type may be from it:
/// sums of K terms by 8 · eps · √K · Σ|terms|, carried through the formula to first order.
struct Expected {
  Vector y, y_tolerance, mean, mean_tolerance, var, var_tolerance;
};

inline Expected NaiveForward(const Shape& shape, const Vector& x, const Vector& scale,
                             const Vector& bias, double epsilon, double eps) {
  const Layout layout(shape);
  Expected e;
  e.y.resize(x.size());
  e.y_tolerance.resize(x.size());
  for (int64_t c = 0; c < layout.channels; ++c) {
    const double n = static_cast<double>(layout.count());
    double mean = 0, magnitude = 0, var = 0;
    layout.ForChannel(c, [&](size_t i) { mean += x[i] / n, magnitude += std::abs(x[i]) / n; });
    layout.ForChannel(c, [&](size_t i) { var += (x[i] - mean) * (x[i] - mean) / n; });
    const double bound = 8 * eps * std::sqrt(n);
    const double mean_tolerance = bound * magnitude;
    const double var_tolerance = bound * var + mean_tolerance * mean_tolerance;
    e.mean.push_back(mean);
    e.mean_tolerance.push_back(mean_tolerance);
    e.var.push_back(var);
    e.var_tolerance.push_back(var_tolerance);
    const double a = scale[c] / std::sqrt(var + epsilon);
    layout.ForChannel(c, [&](size_t i) {
      const double scaled = (x[i] - mean) * a;
      e.y[i] = scaled + bias[c];
      e.y_tolerance[i] = 8 * eps * (std::abs(scaled) + std::abs(bias[c])) +
                         std::abs(a) * mean_tolerance +
                         std::abs(scaled) * var_tolerance / (var + epsilon);
    });
  }
  return e;
}

}  // namespace singa::test
