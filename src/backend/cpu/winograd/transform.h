#pragma once

// Winograd's minimal filtering: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2016. With a 3 x 3 filter, F(4 x 4, 3 x 3), a tile of 6 x 6 inputs yields 4 x 4 outputs with 36
// products instead of 144; with 5 x 5, a tile of 8 x 8 inputs takes 64 products instead of 400:
//
//   Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A
//
// An axis on which the filter has one weight needs no transform: F(1 x 4, 1 x 7) takes 10 products
// instead of 28, F(1 x 4, 1 x 3) 6 instead of 12.
//
// The polynomials are evaluated at 0, at infinity, and at the points of kPoints, which cause less
// rounding error than the usual integers. All constants of A and B are exact.
//
// All functions transform one vector of channels in place: 16 channels with AVX-512, 8 with AVX2
// and with NEON.

#include <array>
#include <cstddef>
#include <cstdint>

#include "backend/cpu/vector.h"
#include "core/device/inline.h"

namespace singa::cpu::winograd {

/// An axis of a tile: `out` outputs of a filter with `taps` weights take `in` inputs, and as many
/// values.
template <int taps, int out = taps == 1 ? 1 : 4>
struct Axis {
  static constexpr int kTaps = taps, kOut = out, kIn = out + taps - 1;
};

/// The size of a filter, and of its tiles.
template <class down, class across>
struct TapsOf {
  using Down = down;
  using Across = across;
  static constexpr int kDown = Down::kTaps, kAcross = Across::kTaps, kWeights = kDown * kAcross;
  static constexpr int kInDown = Down::kIn, kInAcross = Across::kIn;
  static constexpr int kOutDown = Down::kOut, kOutAcross = Across::kOut;
  static constexpr int kPositions = kInDown * kInAcross;  ///< products
};
template <int down, int across>
using Taps = TapsOf<Axis<down>, Axis<across>>;
/// F(6 x 6, 3 x 3), for bfloat16 images: four fifths of the products of F(4 x 4, 3 x 3). Its larger
/// rounding error is far below that of the result.
using LargeTile = TapsOf<Axis<3, 6>, Axis<3, 6>>;

/// The positive points of an axis with so many values; −p is a point for each of them.
template <int values>
inline constexpr std::array<float, 0> kPoints = {};
template <>
inline constexpr std::array<float, 2> kPoints<6> = {0.75f, 1.5f};
template <>
inline constexpr std::array<float, 3> kPoints<8> = {0.5f, 1.0f, 2.0f};
template <>
inline constexpr std::array<float, 4> kPoints<10> = {0.5f, 0.75f, 1.25f, 2.0f};

/// Constants of an axis's transforms, for `n` pairs of points.
template <class A, size_t n = kPoints<A::kIn>.size()>
struct Constants {
  using Polynomial = std::array<float, n + 1>;          // in x², from degree 0
  Polynomial all = {1};                                 // Π (x² − p²)
  std::array<Polynomial, n> without = {};               // ... without the factor of a point
  std::array<std::array<float, A::kIn>, n> power = {};  // of a point
  float zero_factor = 1;             // 1 / Π (point − other points), for the point 0
  std::array<float, n> factor = {};  // the same for ±p

  constexpr Constants() {
    for (size_t i = 0; i < n; ++i) {
      const float p = kPoints<A::kIn>[i], p2 = p * p;
      MultiplyBy(p2, &all);
      without[i][0] = 1;
      float denominator = 2 * p2;
      for (size_t j = 0; j < n; ++j) {
        if (j == i) continue;
        const float q2 = kPoints<A::kIn>[j] * kPoints<A::kIn>[j];
        MultiplyBy(q2, &without[i]);
        denominator *= p2 - q2;
      }
      factor[i] = 1 / denominator;
      power[i][0] = 1;
      for (size_t k = 1; k < power[i].size(); ++k) power[i][k] = power[i][k - 1] * p;
    }
    zero_factor = 1 / all[0];
  }

 private:
  /// Multiplies by x² − p2.
  static constexpr void MultiplyBy(float p2, Polynomial* polynomial) {
    for (size_t k = n; k > 0; --k) (*polynomial)[k] = (*polynomial)[k - 1] - p2 * (*polynomial)[k];
    (*polynomial)[0] *= -p2;
  }
};

#define SINGA_UNROLL _Pragma("GCC unroll 10")

/// Bᵀ: inputs to values, in the order 0, each pair p and −p, infinity.
template <class A, class V>
SINGA_INLINE void InputAxis(V* v) {
  if constexpr (A::kTaps > 1) {
    constexpr Constants<A> c;
    constexpr int n = kPoints<A::kIn>.size();
    V d[A::kIn];
    SINGA_UNROLL for (int i = 0; i < A::kIn; ++i) d[i] = v[i];
    V zero = d[2 * n], infinity = d[2 * n + 1];
    SINGA_UNROLL for (int k = 0; k < n; ++k) {
      zero += c.all[k] * d[2 * k];
      infinity += c.all[k] * d[2 * k + 1];
    }
    v[0] = zero;
    v[2 * n + 1] = infinity;
    SINGA_UNROLL for (int i = 0; i < n; ++i) {
      V even = d[2 * n], odd = d[2 * n - 1];
      SINGA_UNROLL for (int k = 0; k < n - 1; ++k) {
        even += c.without[i][k] * d[2 * k + 2];
        odd += c.without[i][k] * d[2 * k + 1];
      }
      odd *= kPoints<A::kIn>[i];
      v[2 * i + 1] = even + odd;
      v[2 * i + 2] = even - odd;
    }
  }
}

/// Aᵀ: values to outputs.
template <class A, class V>
SINGA_INLINE void OutputAxis(V* v) {
  if constexpr (A::kTaps > 1) {
    constexpr Constants<A> c;
    constexpr int n = kPoints<A::kIn>.size();
    V sum[n], difference[n], out[A::kOut];
    SINGA_UNROLL for (int i = 0; i < n; ++i) {
      sum[i] = v[2 * i + 1] + v[2 * i + 2];
      difference[i] = v[2 * i + 1] - v[2 * i + 2];
    }
    SINGA_UNROLL for (int k = 0; k < A::kOut; ++k) {
      out[k] = c.power[0][k] * (k % 2 ? difference[0] : sum[0]);
      SINGA_UNROLL for (int i = 1; i < n; ++i) out[k] +=
          c.power[i][k] * (k % 2 ? difference[i] : sum[i]);
    }
    out[0] += v[0];
    out[A::kOut - 1] += v[2 * n + 1];
    SINGA_UNROLL for (int k = 0; k < A::kOut; ++k) v[k] = out[k];
  }
}

/// A: gradients of outputs to gradients of values.
template <class A, class V>
SINGA_INLINE void OutputGradientAxis(V* v) {
  if constexpr (A::kTaps > 1) {
    constexpr Constants<A> c;
    constexpr int n = kPoints<A::kIn>.size();
    V y[A::kOut];
    SINGA_UNROLL for (int k = 0; k < A::kOut; ++k) y[k] = v[k];
    SINGA_UNROLL for (int i = 0; i < n; ++i) {
      V even = y[0], odd = c.power[i][1] * y[1];
      SINGA_UNROLL for (int k = 2; k < A::kOut; ++k)(k % 2 ? odd : even) += c.power[i][k] * y[k];
      v[2 * i + 1] = even + odd;
      v[2 * i + 2] = even - odd;
    }
    v[2 * n + 1] = y[A::kOut - 1];
  }
}

/// G: weights to values.
template <class A, class V>
SINGA_INLINE void FilterAxis(V* v) {
  if constexpr (A::kTaps > 1) {
    constexpr Constants<A> c;
    constexpr int n = kPoints<A::kIn>.size();
    V g[A::kTaps];
    SINGA_UNROLL for (int k = 0; k < A::kTaps; ++k) g[k] = v[k];
    v[0] = c.zero_factor * g[0];
    SINGA_UNROLL for (int i = 0; i < n; ++i) {
      V even = c.factor[i] * g[0], odd = c.factor[i] * c.power[i][1] * g[1];
      SINGA_UNROLL for (int k = 2; k < A::kTaps; ++k)(k % 2 ? odd : even) +=
          c.factor[i] * c.power[i][k] * g[k];
      v[2 * i + 1] = even + odd;
      v[2 * i + 2] = even - odd;
    }
    v[2 * n + 1] = g[A::kTaps - 1];
  }
}

/// Gᵀ: gradients of values to gradients of weights.
template <class A, class V>
SINGA_INLINE void FilterGradientAxis(V* v) {
  if constexpr (A::kTaps > 1) {
    constexpr Constants<A> c;
    constexpr int n = kPoints<A::kIn>.size();
    V sum[n], difference[n], g[A::kTaps];
    SINGA_UNROLL for (int i = 0; i < n; ++i) {
      sum[i] = c.factor[i] * (v[2 * i + 1] + v[2 * i + 2]);
      difference[i] = c.factor[i] * (v[2 * i + 1] - v[2 * i + 2]);
    }
    SINGA_UNROLL for (int k = 0; k < A::kTaps; ++k) {
      g[k] = c.power[0][k] * (k % 2 ? difference[0] : sum[0]);
      SINGA_UNROLL for (int i = 1; i < n; ++i) g[k] +=
          c.power[i][k] * (k % 2 ? difference[i] : sum[i]);
    }
    g[0] += c.zero_factor * v[0];
    g[A::kTaps - 1] += v[2 * n + 1];
    SINGA_UNROLL for (int k = 0; k < A::kTaps; ++k) v[k] = g[k];
  }
}

}  // namespace singa::cpu::winograd
