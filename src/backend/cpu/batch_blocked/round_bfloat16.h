#pragma once

namespace singa::cpu {

/// Rounds a vector of floats as BFloat16 does. The result is in the upper halves of 32-bit words.
template <class Floats, class Words>
inline __attribute__((always_inline)) void RoundToBFloat16(const Floats& values, Words& rounded) {
  const auto words = reinterpret_cast<Words>(values);
  const auto nan = reinterpret_cast<Words>(values != values);
  rounded = (words + ((0x7fffu + ((words >> 16) & 1u)) & ~nan)) | (nan & 0x400000u);
}

}  // namespace singa::cpu
