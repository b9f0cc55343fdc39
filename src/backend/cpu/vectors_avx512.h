#pragma once

// Vectors of 16 floats, with AVX-512. Defines SINGA_TARGET, which functions that use them need: GCC
// splits vectors before it inlines, so a function without it would compute with the baseline's.

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstdint>

#include "singa/core/half.h"

// GCC 12 warns of the undefined vectors in its own header (PR 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#define SINGA_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace singa::cpu {
namespace {

/// Vectors of 16 floats.
struct Vectors {
  using Type = __m512;
  using Mask = __mmask16;
  static constexpr int kLanes = 16;

  /// A number of a lane for each lane.
  using Order = __m512i;

  /// A mask of the first n lanes.
  SINGA_TARGET static Mask First(int64_t n) { return static_cast<Mask>((uint32_t{1} << n) - 1); }

  SINGA_TARGET static Type Load(const float* from) { return _mm512_loadu_ps(from); }
  SINGA_TARGET static Type Load(const float* from, Mask mask) {
    return _mm512_maskz_loadu_ps(mask, from);
  }
  SINGA_TARGET static Type Load(const BFloat16* from) {
    return Widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
  SINGA_TARGET static Type Load(const BFloat16* from, Mask mask) {
    return Widened(_mm256_maskz_loadu_epi16(mask, from));
  }
  SINGA_TARGET static Order LoadOrder(const int32_t* from) { return _mm512_loadu_si512(from); }
  /// In lane i the value of lane order[i].
  SINGA_TARGET static Type Load(const float* from, Order order) {
    return _mm512_permutexvar_ps(order, _mm512_loadu_ps(from));
  }
  SINGA_TARGET static void Store(float* to, Type v) { _mm512_storeu_ps(to, v); }
  SINGA_TARGET static void Store(float* to, Type v, Mask mask) {
    _mm512_mask_storeu_ps(to, mask, v);
  }
  SINGA_TARGET static void Store(BFloat16* to, Type v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), Rounded(v));
  }
  SINGA_TARGET static void Store(BFloat16* to, Type v, Mask mask) {
    _mm256_mask_storeu_epi16(to, mask, Rounded(v));
  }
  SINGA_TARGET static void Stream(float* to, Type v) { _mm512_stream_ps(to, v); }
  SINGA_TARGET static void Stream(BFloat16* to, Type v) {
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), Rounded(v));
  }
  static void Fence() { _mm_sfence(); }

  /// v in a register, where the compiler would load it again for each use.
  SINGA_TARGET static Type Held(Type v) {
    __asm__("" : "+v"(v));
    return v;
  }
  SINGA_TARGET static Type Add(Type a, Type b) { return _mm512_add_ps(a, b); }
  SINGA_TARGET static Type Subtract(Type a, Type b) { return _mm512_sub_ps(a, b); }
  SINGA_TARGET static Type Multiply(Type a, Type b) { return _mm512_mul_ps(a, b); }
  SINGA_TARGET static Type All(float value) { return _mm512_set1_ps(value); }
  /// v, or the limit that it is beyond. NaN stays.
  SINGA_TARGET static Type Clip(Type v, Type low, Type high) {
    return _mm512_min_ps(high, _mm512_max_ps(low, v));
  }
  /// a · b + c
  SINGA_TARGET static Type MultiplyAdd(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  SINGA_TARGET static Type Rectify(Type v) {
    const Mask keeps = _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_NLE_UQ);
    return _mm512_maskz_mov_ps(keeps, v);
  }
  /// v · sigmoid(v), within 3 ulp, and v · 0 below -87; without a division. NaN stays.
  SINGA_TARGET static Type Silu(Type v) {
    // e^-v = 2^n · 2^r with an integer n and |r| <= 1/2. log2(e) is split in two.
    const Type x = Clip(v, All(-87), All(87));
    const Type n = _mm512_roundscale_ps(Multiply(x, All(-0x1.715476p0f)), 0);
    const Type r =
        MultiplyAdd(x, All(-0x1.4ae0bep-26f), _mm512_fmsub_ps(x, All(-0x1.715476p0f), n));
    // Interpolates 2^r at the Chebyshev nodes; its relative error is 2e-8.
    Type sum = All(0x1.444p-13f);
    sum = MultiplyAdd(sum, r, All(0x1.5f48c0p-10f));
    sum = MultiplyAdd(sum, r, All(0x1.3b2a1cp-7f));
    sum = MultiplyAdd(sum, r, All(0x1.c6aeccp-5f));
    sum = MultiplyAdd(sum, r, All(0x1.ebfbe0p-3f));
    sum = MultiplyAdd(sum, r, All(0x1.62e430p-1f));
    sum = MultiplyAdd(sum, r, All(1));
    const Type divisor = Add(_mm512_scalef_ps(sum, n), All(1));
    const Type near = _mm512_rcp14_ps(divisor);  // and a step of Newton's method
    const Type sigmoid = MultiplyAdd(_mm512_fnmadd_ps(divisor, near, All(1)), near, near);
    const Mask counts = _mm512_cmp_ps_mask(v, All(-87), _CMP_NLT_UQ);
    return Multiply(v, _mm512_maskz_mov_ps(counts, sigmoid));
  }

 private:
  SINGA_TARGET static Type Widened(__m256i halves) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  /// Rounds as BFloat16 does.
  SINGA_TARGET static __m256i Rounded(Type v) {
    const __m512i words = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(words, 16), _mm512_set1_epi32(1));
    const __m512i half = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const Mask nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i rounded = _mm512_mask_or_epi32(_mm512_add_epi32(words, half), nan, words,
                                                 _mm512_set1_epi32(0x400000));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  }
};

}  // namespace
}  // namespace singa::cpu

#endif
