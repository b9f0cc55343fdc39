#pragma once

// Loops over values that lie side by side, for layer and group norm. Statistics take two passes:
// the mean, then the distances from it and their squares. Sums are float32 over kRun values, and
// double over the runs. The sum of the distances, which would be 0 but for rounding, corrects mean
// and variance (Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance"). So
// equal values give exactly their value.
//
// They are inlined into loops over rows that are SINGA_MULTI_ISA: a call of each for a row of 96
// values would take longer than its work.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/tensor/dtype_switch.h"

namespace singa::cpu {

constexpr int64_t kRun = 1024;

struct NormMoments {
  float mean = 0, inv_std = 0;
};

/// Σ x
template <class T>
[[gnu::always_inline]] inline double RunSum(const T* x, int64_t n) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(n, begin + kRun);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) sum += Convert<float>(x[i]);
    total += sum;
  }
  return total;
}

/// Sums of the distances from an approximate mean, and of their squares.
struct Deviations {
  double sum = 0, squares = 0;
};

template <class T>
[[gnu::always_inline]] inline Deviations RunDeviations(const T* x, int64_t n, float mean) {
  Deviations total;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(n, begin + kRun);
    float sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum, squares)
    for (int64_t i = begin; i < end; ++i) {
      const float d = Convert<float>(x[i]) - mean;
      sum += d;
      squares += d * d;
    }
    total.sum += sum;
    total.squares += squares;
  }
  return total;
}

/// The moments of `count` values with these deviations from `mean`. Without `centered` the mean is
/// 0.
[[gnu::always_inline]] inline NormMoments CorrectedMoments(Deviations deviations, double count,
                                                           float mean, bool centered,
                                                           double epsilon) {
  const double shift = centered ? deviations.sum / count : 0;
  const double var = deviations.squares / count - shift * shift;
  return {static_cast<float>(mean + shift),
          static_cast<float>(1 / std::sqrt((var < 0 ? 0 : var) + epsilon))};  // NaN stays NaN
}

/// Of n values side by side.
template <class T>
[[gnu::always_inline]] inline NormMoments MomentsOfRun(const T* x, int64_t n, bool centered,
                                                       double epsilon) {
  const auto count = static_cast<double>(std::max<int64_t>(n, 1));
  const float mean = centered ? static_cast<float>(RunSum(x, n) / count) : 0;
  return CorrectedMoments(RunDeviations(x, n, mean), count, mean, centered, epsilon);
}

struct GradientSums {
  double gradient = 0;  ///< Σ g, g = dy · scale
  double product = 0;   ///< Σ g · (x − mean)
};

/// Of n values side by side. Without `scale`, g is dy.
template <class T>
[[gnu::always_inline]] inline GradientSums SumGradients(const T* dy, const T* x, int64_t n,
                                                        float mean, const float* scale) {
  GradientSums total;
  for (int64_t begin = 0; begin < n; begin += kRun) {
    const int64_t end = std::min(n, begin + kRun);
    float sum = 0, product = 0;
    if (scale) {
#pragma omp simd reduction(+ : sum, product)
      for (int64_t i = begin; i < end; ++i) {
        const float g = Convert<float>(dy[i]) * scale[i];
        sum += g;
        product += g * (Convert<float>(x[i]) - mean);
      }
    } else {
#pragma omp simd reduction(+ : sum, product)
      for (int64_t i = begin; i < end; ++i) {
        const float g = Convert<float>(dy[i]);
        sum += g;
        product += g * (Convert<float>(x[i]) - mean);
      }
    }
    total.gradient += sum;
    total.product += product;
  }
  return total;
}

}  // namespace singa::cpu
