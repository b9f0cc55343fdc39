#pragma once

// Winograd's minimal filtering: Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks",
// 2016. A tile of 6 x 6 inputs takes 36 products. With a filter of 3 x 3 taps, F(4 x 4, 3 x 3), it
// gives 4 x 4 outputs instead of 144 products; with 5 x 5, F(2 x 2, 5 x 5), 2 x 2 instead of 100:
//
//   Y = Aᵀ [ (G g Gᵀ) ⊙ (Bᵀ d B) ] A
//
// The polynomials are evaluated at 0, ±3/4, ±3/2 and infinity, which halves the rounding error that
// the usual 0, ±1, ±2 have (benchmark/winograd.py measures it). All constants of A and B are exact.
//
// Everything works on the channels of a vector at a time, in place. Vectors are as wide as the
// CPU's: 16 channels with AVX-512, 8 with AVX2.

#include <cstdint>

namespace singa::onednn::winograd {

inline constexpr int kIn = 6;                 ///< inputs of a tile along an axis
inline constexpr int kPositions = kIn * kIn;  ///< products
/// Outputs of a tile along an axis, for 3 or 5 weights along it.
template <int kTaps>
inline constexpr int kOut = kIn + 1 - kTaps;

template <int64_t kLanes>
struct VecOf {
  using Type __attribute__((vector_size(kLanes * sizeof(float)))) = float;
};
template <int64_t kLanes>
using Vec = typename VecOf<kLanes>::Type;

#define SINGA_ALWAYS_INLINE inline __attribute__((always_inline))

/// The same vector anywhere in memory. (GCC 12 copies with memcpy by halves, and a load of what two
/// stores have written waits for them.)
template <class V>
struct Unaligned {
  using Type __attribute__((aligned(alignof(float)), may_alias)) = V;
};
template <class V>
SINGA_ALWAYS_INLINE void Load(V& v, const float* from) {
  v = *reinterpret_cast<const typename Unaligned<V>::Type*>(from);
}
template <class V>
SINGA_ALWAYS_INLINE void Store(float* to, const V& v) {
  *reinterpret_cast<typename Unaligned<V>::Type*>(to) = v;
}

inline constexpr float kA = 0.75f, kB = 1.5f;  // the points
inline constexpr float kA2 = kA * kA, kB2 = kB * kB;
inline constexpr float kA3 = kA2 * kA, kB3 = kB2 * kB;
inline constexpr float kA4 = kA2 * kA2, kB4 = kB2 * kB2;
// 1 / Π (point - other point), of 0, ±a and ±b.
inline constexpr float kF0 = 1 / (kA2 * kB2);
inline constexpr float kFA = 1 / (2 * kA2 * (kA2 - kB2));
inline constexpr float kFB = 1 / (2 * kB2 * (kB2 - kA2));

/// Bᵀ: 6 inputs to 6 values.
template <class V>
SINGA_ALWAYS_INLINE void InputAxis(V* v) {
  const V d0 = v[0], d1 = v[1], d2 = v[2], d3 = v[3], d4 = v[4], d5 = v[5];
  const V even_a = d4 - kB2 * d2, odd_a = kA * (d3 - kB2 * d1);
  const V even_b = d4 - kA2 * d2, odd_b = kB * (d3 - kA2 * d1);
  v[0] = d4 + kA2 * kB2 * d0 - (kA2 + kB2) * d2;
  v[1] = even_a + odd_a;
  v[2] = even_a - odd_a;
  v[3] = even_b + odd_b;
  v[4] = even_b - odd_b;
  v[5] = d5 + kA2 * kB2 * d1 - (kA2 + kB2) * d3;
}

/// Aᵀ: 6 values to 4 or 2 outputs.
template <int kTaps, class V>
SINGA_ALWAYS_INLINE void OutputAxis(V* v) {
  const V m0 = v[0], m1 = v[1], m2 = v[2], m3 = v[3], m4 = v[4], m5 = v[5];
  const V sum_a = m1 + m2, difference_a = m1 - m2, sum_b = m3 + m4, difference_b = m3 - m4;
  v[0] = m0 + sum_a + sum_b;
  if constexpr (kTaps == 3) {
    v[1] = kA * difference_a + kB * difference_b;
    v[2] = kA2 * sum_a + kB2 * sum_b;
    v[3] = m5 + kA3 * difference_a + kB3 * difference_b;
  } else {
    v[1] = m5 + kA * difference_a + kB * difference_b;
  }
}

/// A: 4 or 2 gradients of outputs to 6 of values.
template <int kTaps, class V>
SINGA_ALWAYS_INLINE void OutputGradientAxis(V* v) {
  const V y0 = v[0], y1 = v[1];
  V even_a = y0, odd_a = kA * y1, even_b = y0, odd_b = kB * y1;
  v[5] = y1;
  if constexpr (kTaps == 3) {
    const V y2 = v[2], y3 = v[3];
    even_a += kA2 * y2, odd_a += kA3 * y3;
    even_b += kB2 * y2, odd_b += kB3 * y3;
    v[5] = y3;
  }
  v[1] = even_a + odd_a;
  v[2] = even_a - odd_a;
  v[3] = even_b + odd_b;
  v[4] = even_b - odd_b;
}

/// G: 3 or 5 weights to 6 values.
template <int kTaps, class V>
SINGA_ALWAYS_INLINE void FilterAxis(V* v) {
  const V g0 = v[0], g1 = v[1], g2 = v[2];
  V even_a = kFA * g0 + kFA * kA2 * g2, odd_a = kFA * kA * g1;
  V even_b = kFB * g0 + kFB * kB2 * g2, odd_b = kFB * kB * g1;
  v[5] = g2;
  if constexpr (kTaps == 5) {
    const V g3 = v[3], g4 = v[4];
    even_a += kFA * kA4 * g4, odd_a += kFA * kA3 * g3;
    even_b += kFB * kB4 * g4, odd_b += kFB * kB3 * g3;
    v[5] = g4;
  }
  v[0] = kF0 * g0;
  v[1] = even_a + odd_a;
  v[2] = even_a - odd_a;
  v[3] = even_b + odd_b;
  v[4] = even_b - odd_b;
}

/// Gᵀ: 6 gradients of values to 3 or 5 of weights.
template <int kTaps, class V>
SINGA_ALWAYS_INLINE void FilterGradientAxis(V* v) {
  const V u0 = v[0], u1 = v[1], u2 = v[2], u3 = v[3], u4 = v[4], u5 = v[5];
  const V sum_a = u1 + u2, difference_a = u1 - u2, sum_b = u3 + u4, difference_b = u3 - u4;
  v[0] = kF0 * u0 + kFA * sum_a + kFB * sum_b;
  v[1] = kFA * kA * difference_a + kFB * kB * difference_b;
  v[2] = kFA * kA2 * sum_a + kFB * kB2 * sum_b;
  if constexpr (kTaps == 5) {
    v[3] = kFA * kA3 * difference_a + kFB * kB3 * difference_b;
    v[4] = kFA * kA4 * sum_a + kFB * kB4 * sum_b;
  }
  v[kTaps - 1] += u5;
}

}  // namespace singa::onednn::winograd
