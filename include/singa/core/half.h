#pragma once

#include <bit>
#include <cstdint>

namespace singa {

/// 16-bit storage types. Arithmetic is done in float; conversions round to nearest, ties to even.
/// constexpr lets nvcc call the conversions in device code.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  constexpr explicit BFloat16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    // Rounding would turn a NaN with a small payload into infinity, so NaNs are not rounded. Both
    // cases share one 32-bit expression, which compilers vectorise; they do not vectorise a choice
    // between two 16-bit results.
    const bool nan = value != value;
    const uint32_t carried = u + (nan ? 0u : 0x7fffu + ((u >> 16) & 1u));
    bits = static_cast<uint16_t>((carried | (nan ? 0x400000u : 0u)) >> 16);
  }
  constexpr explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

/// A float of 16 bits with 5 bits of exponent (IEEE 754 binary16).
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  constexpr explicit Float16(float value) {
    const uint32_t u = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (u >> 16) & 0x8000u;
    const uint32_t magnitude = u & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {  // NaN
      bits = static_cast<uint16_t>(sign | 0x7e00u);
    } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more: infinity
      bits = static_cast<uint16_t>(sign | 0x7c00u);
    } else if (magnitude < 0x38800000u) {  // subnormal: let the float unit round at 2^-24
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u));
    } else {
      bits = static_cast<uint16_t>(
          sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
    }
  }
  constexpr explicit operator float() const {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    const uint32_t exponent = (bits >> 10) & 0x1fu;
    const uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent == 0) {
      const float value = static_cast<float>(mantissa) * 0x1p-24f;
      return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
    }
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  }
};

}  // namespace singa
