#pragma once

// Errors of functions of floats.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace singa::formula {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

inline constexpr float kSmallest = 0x1p-149f;

/// Equal, with the sign of a zero; or both NaN.
inline bool IsSame(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

/// The error in units of the last place of the exact value.
inline double Ulps(float got, double exact) {
  if (static_cast<float>(exact) == got) return 0;
  const double magnitude = std::max(std::fabs(exact), 0x1p-126);
  return std::fabs(got - exact) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

/// Every 4099th float.
template <class F>
void ForFloats(const F& f) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) f(x);
  }
}

}  // namespace singa::formula
