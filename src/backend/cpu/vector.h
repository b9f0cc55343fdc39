#pragma once

// Vectors of floats in registers, of any width.

#include <cstddef>
#include <cstdint>

#include "core/device/inline.h"
#include "singa/core/half.h"

namespace singa::cpu {

/// Lanes of the largest register.
#if defined(__aarch64__)
inline constexpr int64_t kRegisterLanes = 4;  // NEON
#else
inline constexpr int64_t kRegisterLanes = 16;
#endif

template <int64_t kLanes>
struct Joined;
template <int64_t kLanes, bool kJoined = (kLanes > kRegisterLanes)>
struct VecOf {
  using Type __attribute__((vector_size(kLanes * sizeof(float)))) = float;
};
template <int64_t kLanes>
struct VecOf<kLanes, true> {
  using Type = Joined<kLanes>;
};
template <int64_t kLanes>
using Vec = typename VecOf<kLanes>::Type;
/// GCC's vector of any width, for what Joined lacks.
template <int64_t kLanes>
using Wide = typename VecOf<kLanes, false>::Type;

/// A vector in several registers. GCC keeps its own in memory, also the sums of a loop, if they are
/// wider than the registers of all instruction sets.
template <int64_t kLanes>
struct Joined {
  using Half = Vec<kLanes / 2>;

  Half low, high;

  friend SINGA_INLINE Joined operator+(const Joined& a, const Joined& b) {
    return {a.low + b.low, a.high + b.high};
  }
  friend SINGA_INLINE Joined operator-(const Joined& a, const Joined& b) {
    return {a.low - b.low, a.high - b.high};
  }
  friend SINGA_INLINE Joined operator*(const Joined& a, const Joined& b) {
    return {a.low * b.low, a.high * b.high};
  }
  friend SINGA_INLINE Joined operator-(float a, const Joined& b) { return {a - b.low, a - b.high}; }
  friend SINGA_INLINE Joined operator*(float a, const Joined& b) { return {a * b.low, a * b.high}; }
  SINGA_INLINE Joined& operator+=(const Joined& other) { return *this = *this + other; }
  SINGA_INLINE Joined& operator*=(float factor) { return *this = factor * *this; }
  /// Replaces negative numbers by zero; NaN stays.
  SINGA_INLINE void Rectify() {
    if constexpr (kLanes / 2 > kRegisterLanes) {
      low.Rectify();
      high.Rectify();
    } else {
      low = low <= 0.0f ? Half{} : low;
      high = high <= 0.0f ? Half{} : high;
    }
  }
};

/// The vector type for unaligned memory. GCC 12 compiles memcpy to two halves, and a vector load
/// then waits for both stores.
template <class V>
struct Unaligned {
  using Type __attribute__((aligned(alignof(float)), may_alias)) = V;
};
template <class V>
SINGA_INLINE void Load(V& v, const float* from) {
  v = *reinterpret_cast<const typename Unaligned<V>::Type*>(from);
}
template <int64_t kLanes>
SINGA_INLINE void Load(Joined<kLanes>& v, const float* from) {
  Load(v.low, from);
  Load(v.high, from + kLanes / 2);
}
template <class V>
SINGA_INLINE void Store(float* to, const V& v) {
  *reinterpret_cast<typename Unaligned<V>::Type*>(to) = v;
}
template <int64_t kLanes>
SINGA_INLINE void Store(float* to, const Joined<kLanes>& v) {
  Store(to, v.low);
  Store(to + kLanes / 2, v.high);
}

/// Rounds a vector of floats as BFloat16 does. The result is in the upper halves of 32-bit words.
template <class Floats, class Words>
SINGA_INLINE void RoundToBFloat16(const Floats& values, Words& rounded) {
  const auto words = reinterpret_cast<Words>(values);
  const auto nan = reinterpret_cast<Words>(values != values);
  rounded = (words + ((0x7fffu + ((words >> 16) & 1u)) & ~nan)) | (nan & 0x400000u);
}

/// Vectors of as many bfloat16 numbers, and of their bits as floats.
template <class V>
struct Halves {
  static constexpr size_t kLanes = sizeof(V) / sizeof(float);
  using Type __attribute__((vector_size(kLanes * sizeof(uint16_t)))) = uint16_t;
  using Words __attribute__((vector_size(kLanes * sizeof(uint32_t)))) = uint32_t;
  using Unaligned __attribute__((aligned(alignof(uint16_t)), may_alias)) = Type;
};
template <class V>
SINGA_INLINE void Load(V& v, const BFloat16* from) {
  const typename Halves<V>::Type halves =
      *reinterpret_cast<const typename Halves<V>::Unaligned*>(from);
  v = reinterpret_cast<V>(__builtin_convertvector(halves, typename Halves<V>::Words) << 16);
}
template <int64_t kLanes>
SINGA_INLINE void Load(Joined<kLanes>& v, const BFloat16* from) {
  Load(v.low, from);
  Load(v.high, from + kLanes / 2);
}
template <class V>
SINGA_INLINE void Store(BFloat16* to, const V& v) {
  typename Halves<V>::Words words;
  RoundToBFloat16(v, words);
  *reinterpret_cast<typename Halves<V>::Unaligned*>(to) =
      __builtin_convertvector(words >> 16, typename Halves<V>::Type);
}
template <int64_t kLanes>
SINGA_INLINE void Store(BFloat16* to, const Joined<kLanes>& v) {
  Store(to, v.low);
  Store(to + kLanes / 2, v.high);
}

}  // namespace singa::cpu
