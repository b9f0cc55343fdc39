#pragma once

// Random numbers from random words. T is the type of the result; a float64 takes two words.

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "core/tensor/dtype_switch.h"

namespace singa::formula {

/// Uniform in [0, 1), with all bits that T holds below one: rounding never gives one.
template <class T>
constexpr double Unit(const uint32_t* words) {
  if constexpr (std::is_same_v<T, double>) {
    const uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
    return static_cast<double>(bits >> 11) * 0x1p-53;
  } else {
    constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, Float16> ? 11 : 8;
    return static_cast<double>(words[0] >> (32 - kBits)) * (1.0 / (uint32_t{1} << kBits));
  }
}

/// Uniform in (0, 1), for a logarithm. For every T the steps are as fine as the words allow.
template <class T>
constexpr double OpenUnit(const uint32_t* words) {
  if constexpr (std::is_same_v<T, double>) return Unit<double>(words) + 0x1p-54;
  return (static_cast<double>(words[0]) + 0.5) * 0x1p-32;
}

/// The greatest T below `bound`.
template <class T>
T Below(double bound) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rounded = static_cast<T>(bound);
    return rounded < bound ? rounded : std::nextafter(rounded, -std::numeric_limits<T>::infinity());
  } else {
    T value(static_cast<float>(bound));
    if (static_cast<float>(value) < bound) return value;
    const float as_float = static_cast<float>(value);
    if (as_float == 0) {
      value.bits = 0x8001;  // the negative number next to zero
    } else {
      value.bits = static_cast<uint16_t>(as_float > 0 ? value.bits - 1 : value.bits + 1);
    }
    return value;
  }
}

/// Uniform in [low, high) of type T.
template <class T>
class UniformRange {
 public:
  using C = ComputeType<T>;
  UniformRange(double low, double high)
      : low_(low),
        width_(high - low),
        // Rounding low + u·width to T may reach high, or fall below low.
        first_(Convert<C>(T(static_cast<C>(low)))),
        last_(Convert<C>(Below<T>(high))) {}
  constexpr T operator()(const uint32_t* words) const {
    const C value = Convert<C>(Convert<T>(low_ + Unit<T>(words) * width_));
    const C below = value < last_ ? value : last_;
    return Convert<T>(below > first_ ? below : first_);
  }

 private:
  double low_, width_;
  C first_, last_;
};

/// Two independent normal numbers (Box and Muller 1958) from the words of two elements.
template <class T>
constexpr std::array<T, 2> GaussianPair(double mean, double std, const uint32_t* words) {
  using C = ComputeType<T>;
  constexpr int kWords = std::is_same_v<T, double> ? 2 : 1;
  const C radius = std::sqrt(C(-2) * std::log(static_cast<C>(OpenUnit<T>(words))));
  const C angle = static_cast<C>(2 * std::numbers::pi * OpenUnit<T>(words + kWords));
  return {Convert<T>(static_cast<C>(mean) + static_cast<C>(std) * (radius * std::cos(angle))),
          Convert<T>(static_cast<C>(mean) + static_cast<C>(std) * (radius * std::sin(angle)))};
}

}  // namespace singa::formula
