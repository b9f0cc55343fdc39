#include "backend/cpu/vectors_avx2.h"

#if defined(__x86_64__)

namespace singa::cpu {
namespace {

/// Vectors of 8 positions.
struct Positions {
  using Type = __m256i;
  using Choice = __m256;  // all bits of the chosen lanes

  SINGA_TARGET static Type All(int32_t position) { return _mm256_set1_epi32(position); }
  SINGA_TARGET static Type Add(Type a, Type b) { return _mm256_add_epi32(a, b); }
  SINGA_TARGET static Type Load(const int32_t* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  }
  SINGA_TARGET static Type Load(const int32_t* from, const Vectors::Mask& mask) {
    return _mm256_maskload_epi32(from, mask.lanes);
  }
  SINGA_TARGET static void Store(int32_t* to, Type v, bool stream) {
    auto* place = reinterpret_cast<__m256i*>(to);
    stream ? _mm256_stream_si256(place, v) : _mm256_storeu_si256(place, v);
  }
  SINGA_TARGET static void Store(int32_t* to, Type v, const Vectors::Mask& mask) {
    _mm256_maskstore_epi32(to, mask.lanes, v);
  }

  /// Whether the value is NaN, or not below the best one.
  SINGA_TARGET static Choice IsBetter(Vectors::Type value, Vectors::Type best) {
    return _mm256_or_ps(_mm256_cmp_ps(value, best, _CMP_GE_OQ),
                        _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }
  SINGA_TARGET static Vectors::Type Choose(Choice first, Vectors::Type a, Vectors::Type b) {
    return _mm256_blendv_ps(b, a, first);
  }
  SINGA_TARGET static Type Choose(Choice first, Type a, Type b) {
    return _mm256_blendv_epi8(b, a, _mm256_castps_si256(first));
  }
  SINGA_TARGET static Choice Equal(Type a, Type b) {
    return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
  }
  SINGA_TARGET static Vectors::Type AddWhere(Choice adds, Vectors::Type sum, Vectors::Type v) {
    return _mm256_blendv_ps(sum, _mm256_add_ps(sum, v), adds);
  }
};

}  // namespace
}  // namespace singa::cpu

#include "backend/cpu/pooling/max_loops_inl.h"

namespace singa::cpu {

template <class T>
MaxLoops<T> MaxLoopsAvx2() {
  return kMaxLoops<T>;
}
template MaxLoops<float> MaxLoopsAvx2();
template MaxLoops<BFloat16> MaxLoopsAvx2();

}  // namespace singa::cpu

#endif
