#pragma once

// Circular and hyperbolic functions of floats and their inverses, as vector_math.h has others:
// without branches or calls. Most are computed in float64, whose rounding errors need no care. They
// are within 2 ulp of the exact value (test/cpp/model/formula/vector_trigonometry_test.cc).

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

#include "core/device/inline.h"
#include "model/formula/vector_math.h"

namespace singa::formula {

/// The largest |x| of Sin, Cos and Tan, whose results beyond are none. The C library has those.
inline constexpr float kFarAngle = 0x1p19f;

namespace detail {

/// x = number·pi/2 + rest with |rest| <= pi/4, of the integer's lowest bits.
struct Quadrant {
  uint32_t number;
  double rest;
};

/// For |x| up to kFarAngle: products with the first part of pi/2, which has 33 bits, are exact.
SINGA_INLINE Quadrant QuadrantOf(float x) {
  const double wide = x, shifted = wide * 0x1.45f306dc9c883p-1 + kWideRound;  // 2 / pi
  const double n = shifted - kWideRound;
  const double rest = (wide - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34;
  return {static_cast<uint32_t>(std::bit_cast<uint64_t>(shifted)), rest};
}

template <class T>
struct SinAndCos {
  T sin, cos;
};

/// Of |r| <= pi/4, by polynomials of r² whose relative errors are 2^-28 and 2^-33.
template <class T>
SINGA_INLINE SinAndCos<T> SinAndCosOf(T r) {
  const T square = r * r;
  T sine = T(-0x1.994e86p-13);
  sine = sine * square + T(0x1.110760p-7);
  sine = sine * square - T(0x1.555546p-3);
  T cosine = T(0x1.9a0230p-16);
  cosine = cosine * square - T(0x1.6c0c8cp-10);
  cosine = cosine * square + T(0x1.55554ap-5);
  return {r + r * square * sine, (1 - T(0.5) * square) + square * square * cosine};
}

/// sin(number·pi/2 + rest)
SINGA_INLINE float SinOf(uint32_t number, double rest) {
  const auto [sin, cos] = SinAndCosOf(static_cast<float>(rest));
  const float y = Select((number & 1) != 0, cos, sin);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y) ^ ((number & 2) << 30));
}

/// The angle of the point (x, y) with x, y >= 0.
SINGA_INLINE double AngleOf(double y, double x) {
  // atan(t) / t for t in [0, 1] as a polynomial of t²; its relative error is 2^-31.
  const bool is_steep = y > x;
  const double t = (is_steep ? x : y) / (is_steep ? y : x), square = t * t;
  double sum = 0x1.1e076cf5683p-10;
  sum = sum * square - 0x1.d7d1dc4672fb4p-8;
  sum = sum * square + 0x1.6cf1859db201ep-6;
  sum = sum * square - 0x1.6b6074b6da23bp-5;
  sum = sum * square + 0x1.1317803157e5ep-4;
  sum = sum * square - 0x1.6865cffa98905p-4;
  sum = sum * square + 0x1.c4cad889ec2p-4;
  sum = sum * square - 0x1.246feb9bb88c8p-3;
  sum = sum * square + 0x1.999786f3039b3p-3;
  sum = sum * square - 0x1.55554f06befe4p-2;
  sum = sum * square + 0x1.fffffffcce76cp-1;
  return Select(is_steep, std::numbers::pi / 2 - t * sum, t * sum);
}

/// e^|x| / 2, which is finite wherever sinh and cosh are.
SINGA_INLINE float HalfExp(float x) {
  const float magnitude = std::fabs(x);
  const auto [power, tail] = Split(magnitude > 90.0f ? 90.0f : magnitude);
  return Scaled(tail, power - 1);
}

/// Where asinh and atanh are x but for rounding; the logarithms of their formulas lose its digits.
inline constexpr float kTiny = 0x1p-12f;

}  // namespace detail

SINGA_INLINE float Sin(float x) {
  const auto [number, rest] = detail::QuadrantOf(x);
  return x == 0 ? x : detail::SinOf(number, rest);
}
SINGA_INLINE float Cos(float x) {
  const auto [number, rest] = detail::QuadrantOf(x);
  return detail::SinOf(number + 1, rest);
}
SINGA_INLINE float Tan(float x) {
  const auto [number, rest] = detail::QuadrantOf(x);
  const auto [sin, cos] = detail::SinAndCosOf(rest);
  const bool is_odd = (number & 1) != 0;
  const double y = detail::Select(is_odd, -cos, sin) / detail::Select(is_odd, sin, cos);
  return x == 0 ? x : static_cast<float>(y);
}

SINGA_INLINE float Asin(float x) {
  const double a = std::fabs(x);
  return std::copysign(static_cast<float>(detail::AngleOf(a, std::sqrt((1 - a) * (1 + a)))), x);
}
SINGA_INLINE float Acos(float x) {
  const double a = std::fabs(x), y = detail::AngleOf(std::sqrt((1 - a) * (1 + a)), a);
  return static_cast<float>(x < 0 ? std::numbers::pi - y : y);
}
SINGA_INLINE float Atan(float x) {
  return std::copysign(static_cast<float>(detail::AngleOf(std::fabs(x), 1)), x);
}

SINGA_INLINE float Sinh(float x) {
  const float half = detail::HalfExp(x), square = x * x;
  // Below 1 a polynomial of x²; its relative error is 2^-34.
  float sum = 0x1.7a267ep-19f;
  sum = sum * square + 0x1.9ffe12p-13f;
  sum = sum * square + 0x1.111136p-7f;
  sum = sum * square + 0x1.555556p-3f;
  return detail::Select(std::fabs(x) < 1, x + x * square * sum,
                        std::copysign(half - 0.25f / half, x));
}
SINGA_INLINE float Cosh(float x) {
  const float half = detail::HalfExp(x);
  return half + 0.25f / half;
}

SINGA_INLINE float Asinh(float x) {
  const double a = std::fabs(x);
  const double y = detail::WideLog2(a + std::sqrt(a * a + 1)) * std::numbers::ln2;
  return std::fabs(x) < detail::kTiny ? x : std::copysign(static_cast<float>(y), x);
}
SINGA_INLINE float Acosh(float x) {
  const double a = x;
  const double y = detail::WideLog2(a + std::sqrt((a - 1) * (a + 1))) * std::numbers::ln2;
  return x < 1 ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(y);
}
SINGA_INLINE float Atanh(float x) {
  const double a = x;
  const double y = detail::WideLog2((1 + a) / (1 - a)) * (std::numbers::ln2 / 2);
  const float beyond = std::numeric_limits<float>::quiet_NaN();
  return std::fabs(x) < detail::kTiny ? x : std::fabs(x) <= 1 ? static_cast<float>(y) : beyond;
}

}  // namespace singa::formula
