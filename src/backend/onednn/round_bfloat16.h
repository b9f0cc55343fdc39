#pragma once

namespace singa::onednn {

/// The bits of a vector of floats, rounded as BFloat16 does, in the upper halves of words of 32
/// bits.
template <class Floats, class Words>
inline __attribute__((always_inline)) void RoundToBFloat16(const Floats& values, Words& rounded) {
  const auto words = reinterpret_cast<Words>(values);
  const auto nan = reinterpret_cast<Words>(values != values);
  rounded = (words + ((0x7fffu + ((words >> 16) & 1u)) & ~nan)) | (nan & 0x400000u);
}

}  // namespace singa::onednn
