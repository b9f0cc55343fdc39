#include "backend/cpu/vectors_avx512.h"

#if defined(__x86_64__)

namespace singa::cpu {
namespace {

/// Vectors of 16 positions.
struct Positions {
  using Type = __m512i;
  using Choice = __mmask16;

  SINGA_TARGET static Type All(int32_t position) { return _mm512_set1_epi32(position); }
  SINGA_TARGET static Type Add(Type a, Type b) { return _mm512_add_epi32(a, b); }
  SINGA_TARGET static Type Load(const int32_t* from) { return _mm512_loadu_si512(from); }
  SINGA_TARGET static Type Load(const int32_t* from, Vectors::Mask mask) {
    return _mm512_maskz_loadu_epi32(mask, from);
  }
  SINGA_TARGET static void Store(int32_t* to, Type v, bool stream) {
    stream ? _mm512_stream_si512(reinterpret_cast<__m512i*>(to), v) : _mm512_storeu_si512(to, v);
  }
  SINGA_TARGET static void Store(int32_t* to, Type v, Vectors::Mask mask) {
    _mm512_mask_storeu_epi32(to, mask, v);
  }

  /// Whether the value is NaN, or not below the best one.
  SINGA_TARGET static Choice IsBetter(Vectors::Type value, Vectors::Type best) {
    return _mm512_cmp_ps_mask(value, best, _CMP_GE_OQ) |
           _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  }
  SINGA_TARGET static Vectors::Type Choose(Choice first, Vectors::Type a, Vectors::Type b) {
    return _mm512_mask_mov_ps(b, first, a);
  }
  SINGA_TARGET static Type Choose(Choice first, Type a, Type b) {
    return _mm512_mask_mov_epi32(b, first, a);
  }
  SINGA_TARGET static Choice Equal(Type a, Type b) { return _mm512_cmpeq_epi32_mask(a, b); }
  SINGA_TARGET static Vectors::Type AddWhere(Choice adds, Vectors::Type sum, Vectors::Type v) {
    return _mm512_mask_add_ps(sum, adds, sum, v);
  }
};

}  // namespace
}  // namespace singa::cpu

#include "backend/cpu/pooling/max_loops_inl.h"

namespace singa::cpu {

template <class T>
MaxLoops<T> MaxLoopsAvx512() {
  return kMaxLoops<T>;
}
template MaxLoops<float> MaxLoopsAvx512();
template MaxLoops<BFloat16> MaxLoopsAvx512();

}  // namespace singa::cpu

#endif
