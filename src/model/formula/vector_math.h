#pragma once

// Exponentials, logarithms, powers, sin, cos, tanh, sigmoid, softplus, erf and erfc without
// branches or calls, so that loops over them vectorise; used by kernels that would otherwise spend
// most of their time in the C library. Floats are within 3 ulp of the exact value, those of erfc
// within 7 (test/cpp/model/formula/vector_math_test.cc); doubles use the C library.

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/device/inline.h"

namespace singa::formula {

namespace detail {

/// Adding it rounds a float below 2^22, or a double below 2^51, to an integer in the lowest bits.
inline constexpr float kRound = 0x1.8p23f;
inline constexpr double kWideRound = 0x1.8p52;

/// x = n·ln 2 + r with integer n and |r| <= ln 2 / 2.
struct Reduced {
  int32_t n;
  float r;
};

/// For x in [-1000, 1000]; NaN gives a NaN r.
SINGA_INLINE Reduced Reduce(float x) {
  const float shifted = x * 0x1.715476p0f + kRound;  // log2(e)
  const float n = shifted - kRound;
  // ln 2 is split in two: the first part has so few bits that its product with n is exact.
  return {std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound),
          (x - n * 0x1.62ep-1f) - n * 0x1.0bfbe8p-15f};
}

/// e^r − 1 = r + r²·(1/2! + r/3! + ... + r⁵/7!); for |r| <= ln 2 / 2 the next term is below 2^-27.
SINGA_INLINE float ExpTail(float r) {
  float sum = 1.0f / 5040;
  sum = sum * r + 1.0f / 720;
  sum = sum * r + 1.0f / 120;
  sum = sum * r + 1.0f / 24;
  sum = sum * r + 1.0f / 6;
  sum = sum * r + 0.5f;
  return r + r * r * sum;
}

/// e^x = 2^power·(1 + tail)
struct SplitExp {
  int32_t power;
  float tail;
};

/// For x in [-1000, 1000]; NaN gives a NaN tail.
SINGA_INLINE SplitExp Split(float x) {
  const auto [n, r] = Reduce(x);
  return {n, ExpTail(r)};
}

/// 2^n for n in [-126, 127].
SINGA_INLINE float PowerOfTwo(int32_t n) {
  return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}

/// 2^n·(1 + tail) for n in [-252, 254], of which 2^n itself may be out of range.
SINGA_INLINE float Scaled(float tail, int32_t n) {
  const int32_t half = n >> 1;
  return (1 + tail) * PowerOfTwo(half) * PowerOfTwo(n - half);
}

/// `yes` or `no`, both of which are computed. Of a conditional expression the compiler makes a
/// branch where one of them, or what follows from it, takes long, and the loop around it does not
/// vectorise.
SINGA_INLINE float Select(bool condition, float yes, float no) {
  const uint32_t mask = 0u - static_cast<uint32_t>(condition);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(yes) & mask) |
                              (std::bit_cast<uint32_t>(no) & ~mask));
}
SINGA_INLINE double Select(bool condition, double yes, double no) {
  const uint64_t mask = uint64_t{0} - static_cast<uint64_t>(condition);
  return std::bit_cast<double>((std::bit_cast<uint64_t>(yes) & mask) |
                               (std::bit_cast<uint64_t>(no) & ~mask));
}

}  // namespace detail

/// e^x, including subnormal results; 0 and infinity outside the range of floats.
SINGA_INLINE float Exp(float x) {
  const float bounded = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
  const auto [power, tail] = detail::Split(bounded);
  return detail::Scaled(tail, power);
}
inline double Exp(double x) { return std::exp(x); }

/// e^x − 1, exact to rounding near 0 as well.
SINGA_INLINE float Expm1(float x) {
  const auto [power, tail] = detail::Split(x > 89.0f ? 89.0f : x < -20.0f ? -20.0f : x);
  // No cancellation: power is 0 near zero. Above 20 the 1 does not count, and 2^power may overflow.
  const float scale = detail::PowerOfTwo(power);
  const float y = detail::Select(x > 20, detail::Scaled(tail, power), scale * tail + (scale - 1));
  return std::copysign(y, x);
}
inline double Expm1(double x) { return std::expm1(x); }

namespace detail {

/// 2^r − 1 for |r| <= 1/2; the polynomial's relative error is 2^-31.
SINGA_INLINE float Exp2Tail(float r) {
  float sum = 0x1.00dc4ap-16f;
  sum = sum * r + 0x1.444004p-13f;
  sum = sum * r + 0x1.5d874cp-10f;
  sum = sum * r + 0x1.3b2a1cp-7f;
  sum = sum * r + 0x1.c6b08ep-5f;
  sum = sum * r + 0x1.ebfbe0p-3f;
  sum = sum * r + 0x1.62e430p-1f;
  return sum * r;
}

}  // namespace detail

/// 2^x, including subnormal results; 0 and infinity outside the range of floats.
SINGA_INLINE float Exp2(float x) {
  const float bounded = x > 129.0f ? 129.0f : x < -151.0f ? -151.0f : x;
  const float shifted = bounded + detail::kRound;
  const int32_t n = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(detail::kRound);
  return detail::Scaled(detail::Exp2Tail(bounded - (shifted - detail::kRound)), n);
}
inline double Exp2(double x) { return std::exp2(x); }

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

namespace detail {

/// n of x = 2^n·m with m in [sqrt(1/2), sqrt(2)), for x of 2^-126 and more.
SINGA_INLINE int32_t PowerOf(float x) {
  return static_cast<int32_t>(std::bit_cast<uint32_t>(x) - 0x3f3504f3u) >> 23;  // of sqrt(1/2)
}

/// log(1 + f) − f + f²/2, for 1 + f in [sqrt(1/2), sqrt(2)): so log(1 + f) begins with an exact
/// term. With s = f / (2 + f) it is s·(f²/2 + s²·(2/3 + 2/5·s² + ...)), by FreeBSD's polynomial
/// (e_logf.c), whose error is 2^-34.
SINGA_INLINE float LogRest(float f) {
  const float s = f / (2 + f), square = s * s;
  float sum = 0x1.f13c4cp-3f;
  sum = sum * square + 0x1.23d3dcp-2f;
  sum = sum * square + 0x1.999c26p-2f;
  sum = sum * square + 0x1.555554p-1f;
  return s * (0.5f * f * f + square * sum);
}

/// y, the logarithm of x > 0; that of 0, of numbers below 0, of infinity and of NaN.
SINGA_INLINE float LogOf(float x, float y) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float beyond = x == 0 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
  return x > 0 ? (x < kInfinity ? y : x) : beyond;
}

/// The logarithm to a base, from 1 / log(base) and log(2) / log(base), which are `factor` + `rest`
/// and `two` + `two_rest`. Products with `factor` and `two`, which have few bits, are exact.
SINGA_INLINE float LogToBase(float x, float factor, float rest, float two, float two_rest) {
  const bool subnormal = x < 0x1p-126f;
  const float larger = subnormal ? x * 0x1p24f : x;
  const int32_t n = PowerOf(larger);
  const float f =
      std::bit_cast<float>(std::bit_cast<uint32_t>(larger) - (static_cast<uint32_t>(n) << 23)) - 1;
  const auto power = static_cast<float>(subnormal ? n - 24 : n);
  const float square = 0.5f * f * f;
  const auto head = std::bit_cast<float>(std::bit_cast<uint32_t>(f - square) & 0xfffff000u);
  const float tail = (f - head) - square + LogRest(f);
  const float y = power * two_rest + (tail + head) * rest + tail * factor + head * factor;
  return LogOf(x, y + power * two);
}

}  // namespace detail

SINGA_INLINE float Log2(float x) {
  return detail::LogToBase(x, 0x1.716p0f, -0x1.7135a8p-13f, 1, 0);
}
inline double Log2(double x) { return std::log2(x); }
SINGA_INLINE float Log10(float x) {
  return detail::LogToBase(x, 0x1.bccp-2f, -0x1.09d5b2p-15f, 0x1.3441p-2f, 0x1.a84fb6p-21f);
}
inline double Log10(double x) { return std::log10(x); }

/// log(1 + x), exact to rounding near 0 as well; NaN below -1.
SINGA_INLINE float Log1p(float x) {
  // 1 + x = 2^n·(1 + f), where f = 2^-n·x + (2^-n − 1) keeps the digits that 1 + x loses.
  const float sum = 1 + x;
  const int32_t n = detail::PowerOf(sum), half = n >> 1;
  const float a = detail::PowerOfTwo(-half), b = detail::PowerOfTwo(half - n);
  const float f = x * a * b + (a * b - 1), power = static_cast<float>(n);
  const float y =
      power * 0x1.62ep-1f + (f - (0.5f * f * f - (detail::LogRest(f) + power * 0x1.0bfbe8p-15f)));
  return std::copysign(detail::LogOf(sum, y), x);
}
inline double Log1p(double x) { return std::log1p(x); }

namespace detail {

/// log2(x) in float64, as exact as floats and their powers need. That of 0 is -infinity, and that
/// of infinity or NaN itself; none of a number below 0.
SINGA_INLINE double WideLog2(double x) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr uint64_t kRootHalf = 0x3fe6a09e667f3bcd;
  const uint64_t bits = std::bit_cast<uint64_t>(x) - kRootHalf;
  const int32_t n = static_cast<int32_t>(static_cast<uint32_t>(bits >> 32)) >> 20;
  const auto m = std::bit_cast<double>((bits & 0x000fffffffffffff) + kRootHalf);
  // x = 2^n·m, log2(m) = s·p(s²) with s = (m − 1) / (m + 1); the relative error is 2^-37.
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0x1.5ceb0e84de23ep-2;
  sum = sum * square + 0x1.a58d5fb874e0bp-2;
  sum = sum * square + 0x1.2777804927404p-1;
  sum = sum * square + 0x1.ec709d123df13p-1;
  sum = sum * square + 0x1.71547652bee75p+1;
  return Select(x < kInfinity, Select(x > 0, n + s * sum, -kInfinity), x);
}

}  // namespace detail

/// a^b as std::pow, special cases included.
SINGA_INLINE float Pow(float a, float b) {
  const float magnitude = std::fabs(a);
  // 2 to the power b·log2|a|. 1^b and a^0 are 1, whatever b and a are.
  const uint64_t counts = static_cast<uint64_t>((magnitude == 1) | (b == 0)) - 1;
  const auto y =
      std::bit_cast<double>(std::bit_cast<uint64_t>(detail::WideLog2(magnitude) * b) & counts);
  const double bounded = detail::Select(y > 129, 129, detail::Select(y < -151, -151, y));
  const double shifted = bounded + detail::kWideRound;
  const auto rest = static_cast<float>(bounded - (shifted - detail::kWideRound));
  const auto power = static_cast<int32_t>(static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted)));
  const float result = detail::Scaled(detail::Exp2Tail(rest), power);
  // A number below 0 has powers of whole exponents alone, which for odd ones are below 0.
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const double whole = static_cast<double>(b) + detail::kWideRound;
  const bool is_whole = whole - detail::kWideRound == b;
  const bool may_be_odd = is_whole & (std::fabs(b) < 0x1p24f);
  const uint32_t odd = static_cast<uint32_t>(std::bit_cast<uint64_t>(whole)) << 31;
  const uint32_t sign = std::bit_cast<uint32_t>(a) & odd & (0u - static_cast<uint32_t>(may_be_odd));
  return detail::Select((a < 0) & (magnitude < kInfinity) & !is_whole,
                        std::numeric_limits<float>::quiet_NaN(),
                        std::bit_cast<float>(std::bit_cast<uint32_t>(result) ^ sign));
}
inline double Pow(double a, double b) { return std::pow(a, b); }

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
  // a² = head² + rest, since its rounding error would be too large in the exponent. The square of
  // 12 bits is exact.
  const auto head = std::bit_cast<float>(std::bit_cast<uint32_t>(a) & 0xfffff000u);
  const float rest = (a + head) * (a - head);  // below 0.1
  const auto [n, r] = detail::Reduce(-head * head);
  // 2^n may be subnormal.
  const float density = (1 + detail::ExpTail(r - rest)) * detail::PowerOfTwo(n + 32) * 0x1p-32f;
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
