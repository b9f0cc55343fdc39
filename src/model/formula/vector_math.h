#pragma once

// exp, log, tanh, sigmoid, softplus, erf and erfc without branches or calls, so that loops over
// them vectorise; used by kernels that would otherwise spend most of their time in the C library.
// Floats are within 3 ulp of the exact value, those of erfc within 7
// (test/cpp/model/formula/vector_math_test.cc); doubles use the C library.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/device/inline.h"

namespace singa::formula {

namespace detail {

/// x = n·ln 2 + r with integer n and |r| <= ln 2 / 2. `power` is n; `tail` is e^r − 1.
struct SplitExp {
  int32_t power;
  float tail;
};

/// For x in [-1000, 1000]; NaN gives a NaN tail.
SINGA_INLINE SplitExp Split(float x) {
  // Adding 1.5·2^23 rounds to an integer in the lowest bits.
  constexpr float kRound = 0x1.8p23f;
  const float shifted = x * 0x1.715476p0f + kRound;  // log2(e)
  const float n = shifted - kRound;
  // ln 2 is split in two: the first part has so few bits that its product with n is exact.
  const float r = (x - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f;
  // e^r − 1 = r + r²·(1/2! + r/3! + ... + r⁵/7!); the next term is below 2^-27.
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  return {std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound), r + r * r * sum};
}

/// 2^n for n in [-126, 127].
SINGA_INLINE float PowerOfTwo(int32_t n) {
  return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}

}  // namespace detail

/// e^x, including subnormal results; 0 and infinity outside the range of floats.
SINGA_INLINE float Exp(float x) {
  const float bounded = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
  const auto [power, tail] = detail::Split(bounded);
  const int32_t half = power >> 1;  // 2^power itself may be out of range
  return (1 + tail) * detail::PowerOfTwo(half) * detail::PowerOfTwo(power - half);
}
inline double Exp(double x) { return std::exp(x); }

namespace detail {

/// 2·atanh(s) / s for |s| <= 1/3, by its series; the next term is below 2^-29.
SINGA_INLINE float TwiceAtanhRatio(float s) {
  const float square = s * s;
  float sum = 2.0f / 17;
  sum = sum * square + 2.0f / 15;
  sum = sum * square + 2.0f / 13;
  sum = sum * square + 2.0f / 11;
  sum = sum * square + 2.0f / 9;
  sum = sum * square + 2.0f / 7;
  sum = sum * square + 2.0f / 5;
  sum = sum * square + 2.0f / 3;
  return sum * square + 2.0f;
}

/// `yes` or `no`, both of which are computed. Of a conditional expression the compiler makes a
/// branch where one of them takes long, and the loop around it does not vectorise.
SINGA_INLINE float Select(bool condition, float yes, float no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(yes) & mask) |
                              (std::bit_cast<uint32_t>(no) & ~mask));
}

}  // namespace detail

/// Natural logarithm; that of 0 is -infinity, that of a number below 0 NaN.
SINGA_INLINE float Log(float x) {
  // x = 2^n·m with m in [sqrt(1/2), sqrt(2)); a subnormal x is made larger first.
  const bool subnormal = x < 0x1p-126f;
  const float larger = subnormal ? x * 0x1p24f : x;
  const uint32_t bits = std::bit_cast<uint32_t>(larger) - 0x3f3504f3u;  // of sqrt(1/2)
  const int32_t n = static_cast<int32_t>(bits) >> 23;
  const auto m = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u);
  const float power = static_cast<float>(subnormal ? n - 24 : n);
  // log(m) = 2·atanh((m − 1) / (m + 1)); ln 2 is split as in Split.
  const float s = (m - 1) / (m + 1);
  const float y = power * 0x1.62ep-1f + (s * detail::TwiceAtanhRatio(s) + power * 0x1.0bfbe8p-15f);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float beyond = x == 0 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  return x > 0 ? (x < kInfinity ? y : x) : beyond;
}
inline double Log(double x) { return std::log(x); }

/// log(1 + e^x), without overflow.
SINGA_INLINE float SoftPlus(float x) {
  // With e = e^-|x|, log(1 + e) = 2·atanh(e / (2 + e)).
  const float e = Exp(-std::fabs(x)), s = e / (2 + e);
  return (x > 0 ? x : 0) + s * detail::TwiceAtanhRatio(s);
}
inline double SoftPlus(double x) { return (x > 0 ? x : 0) + std::log1p(std::exp(-std::fabs(x))); }

/// 1 / (1 + e^-x); 0 where the result would be subnormal.
template <class T>
inline T Sigmoid(T x) {
  return 1 / (1 + Exp(-x));
}

inline float Tanh(float x) {
  // (e^2|x| − 1) / (e^2|x| + 1). Beyond |x| = 10 this rounds to 1.
  const float magnitude = std::fabs(x);
  const auto [power, tail] = detail::Split(magnitude > 10.0f ? 20.0f : 2 * magnitude);
  const float scale = detail::PowerOfTwo(power);
  const float minus_one = scale * tail + (scale - 1);  // no cancellation: power is 0 near zero
  return std::copysign(minus_one / (minus_one + 2), x);
}
inline double Tanh(double x) { return std::tanh(x); }

/// erfc(x) and e^(−x²), which the derivative of GELU needs together.
struct Tail {
  float erfc, density;
};

SINGA_INLINE Tail ErfcAndDensity(float x) {
  // Beyond 10.3 both are zero.
  const float magnitude = std::fabs(x), a = magnitude > 10.3f ? 10.3f : magnitude;
  // e^(−a²) = e^(−head²)·e^(−rest), since the rounding error of a² would be too large in the
  // exponent. The square of 12 bits is exact.
  const auto head = std::bit_cast<float>(std::bit_cast<uint32_t>(a) & 0xfffff000u);
  const float rest = (a + head) * (a - head);  // below 0.1
  float series = 1 - rest * (1.0f / 4);
  series = 1 - rest * (1.0f / 3) * series;
  series = 1 - rest * (1.0f / 2) * series;
  const float density = Exp(-head * head) * (1 - rest * series);
  // (a + 3)·e^(a²)·erfc(a) as a polynomial of t = (a − 3) / (a + 3), interpolated at the Chebyshev
  // nodes for a in [0, 10.2]; its relative error is 6e-9.
  const float inverse = 1 / (a + 3), t = (a - 3) * inverse;
  float sum = -0x1.5e0a56p-12f;
  sum = sum * t - 0x1.05a836p-11f;
  sum = sum * t + 0x1.937358p-9f;
  sum = sum * t - 0x1.3f051ap-10f;
  sum = sum * t - 0x1.b7b12ep-6f;
  sum = sum * t + 0x1.e99560p-4f;
  sum = sum * t - 0x1.3deaf6p-2f;
  sum = sum * t + 0x1.2e326cp-1f;
  sum = sum * t - 0x1.c44c48p-1f;
  sum = sum * t + 0x1.12f21ep+0f;
  const float right = density * (sum * inverse);
  return {x < 0 ? 2 - right : right, density};
}

/// 1 − erf(x), without cancellation for large x.
SINGA_INLINE float Erfc(float x) { return ErfcAndDensity(x).erfc; }
inline double Erfc(double x) { return std::erfc(x); }

SINGA_INLINE float Erf(float x) {
  // Below 1 a polynomial of x², interpolated at the Chebyshev nodes; its relative error is 1e-9.
  const float square = x * x;
  float sum = 0x1.4a5690p-14f;
  sum = sum * square - 0x1.a45088p-11f;
  sum = sum * square + 0x1.541270p-8f;
  sum = sum * square - 0x1.b7fabap-6f;
  sum = sum * square + 0x1.ce2d10p-4f;
  sum = sum * square - 0x1.81273ep-2f;
  sum = sum * square + 0x1.20dd74p+0f;
  const float magnitude = std::fabs(x);
  return detail::Select(magnitude < 1, x * sum, std::copysign(1 - Erfc(magnitude), x));
}
inline double Erf(double x) { return std::erf(x); }

}  // namespace singa::formula
