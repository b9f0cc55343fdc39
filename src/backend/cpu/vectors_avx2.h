#pragma once

// Vectors of 8 floats, with AVX2. Defines SINGA_TARGET, which functions that use them need: GCC
// splits vectors before it inlines, so a function without it would compute with the baseline's.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "singa/core/half.h"

#define SINGA_TARGET __attribute__((target("avx2,fma")))

namespace singa::cpu {
namespace {

/// Vectors of 8 floats.
struct Vectors {
  using Type = __m256;
  static constexpr int kLanes = 8;
  struct Mask {
    int64_t count;
    __m256i lanes;
  };

  /// A number of a lane for each lane.
  using Order = __m256i;

  /// A mask of the first n lanes.
  SINGA_TARGET static Mask First(int64_t n) {
    const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {n, _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), lanes)};
  }

  SINGA_TARGET static Type Load(const float* from) { return _mm256_loadu_ps(from); }
  SINGA_TARGET static Type Load(const float* from, Mask mask) {
    return _mm256_maskload_ps(from, mask.lanes);
  }
  SINGA_TARGET static Type Load(const BFloat16* from) {
    return Widened(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  }
  SINGA_TARGET static Type Load(const BFloat16* from, Mask mask) {
    alignas(16) BFloat16 halves[kLanes] = {};
    std::memcpy(static_cast<void*>(halves), from,
                static_cast<size_t>(mask.count) * sizeof(BFloat16));
    return Widened(_mm_load_si128(reinterpret_cast<const __m128i*>(halves)));
  }
  SINGA_TARGET static Order LoadOrder(const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  /// In lane i the value of lane order[i].
  SINGA_TARGET static Type Load(const float* from, Order order) {
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(from), order);
  }
  SINGA_TARGET static void Store(float* to, Type v) { _mm256_storeu_ps(to, v); }
  SINGA_TARGET static void Store(float* to, Type v, Mask mask) {
    _mm256_maskstore_ps(to, mask.lanes, v);
  }
  SINGA_TARGET static void Store(BFloat16* to, Type v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to), Rounded(v));
  }
  SINGA_TARGET static void Store(BFloat16* to, Type v, Mask mask) {
    const __m128i halves = Rounded(v);
    std::memcpy(static_cast<void*>(to), &halves,
                static_cast<size_t>(mask.count) * sizeof(BFloat16));
  }
  SINGA_TARGET static void Stream(float* to, Type v) { _mm256_stream_ps(to, v); }
  SINGA_TARGET static void Stream(BFloat16* to, Type v) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to), Rounded(v));
  }
  static void Fence() { _mm_sfence(); }

  /// v in a register, where the compiler would load it again for each use.
  SINGA_TARGET static Type Held(Type v) {
    __asm__("" : "+x"(v));
    return v;
  }
  SINGA_TARGET static Type Add(Type a, Type b) { return _mm256_add_ps(a, b); }
  SINGA_TARGET static Type Subtract(Type a, Type b) { return _mm256_sub_ps(a, b); }
  SINGA_TARGET static Type Multiply(Type a, Type b) { return _mm256_mul_ps(a, b); }
  SINGA_TARGET static Type All(float value) { return _mm256_set1_ps(value); }
  /// v, or the limit that it is beyond. NaN stays.
  SINGA_TARGET static Type Clip(Type v, Type low, Type high) {
    return _mm256_min_ps(high, _mm256_max_ps(low, v));
  }
  /// a · b + c
  SINGA_TARGET static Type MultiplyAdd(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  SINGA_TARGET static Type Rectify(Type v) {
    return _mm256_and_ps(v, _mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_NLE_UQ));
  }

 private:
  SINGA_TARGET static Type Widened(__m128i halves) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  /// Rounds as BFloat16 does.
  SINGA_TARGET static __m128i Rounded(Type v) {
    const __m256i words = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(words, 16), _mm256_set1_epi32(1));
    const __m256i half = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i quiet = _mm256_or_si256(words, _mm256_set1_epi32(0x400000));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_blendv_epi8(_mm256_add_epi32(words, half), quiet, nan), 16);
    const __m256i packed = _mm256_packus_epi32(rounded, rounded);  // in each half
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
  }
};

}  // namespace
}  // namespace singa::cpu

#endif
