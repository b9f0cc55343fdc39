#pragma once

// Vectors of floats in registers, of any width; the compiler splits those that are too wide.

#include <cstdint>

#include "core/device/inline.h"

namespace singa::cpu {

template <int64_t kLanes>
struct VecOf {
  using Type __attribute__((vector_size(kLanes * sizeof(float)))) = float;
};
template <int64_t kLanes>
using Vec = typename VecOf<kLanes>::Type;

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
template <class V>
SINGA_INLINE void Store(float* to, const V& v) {
  *reinterpret_cast<typename Unaligned<V>::Type*>(to) = v;
}

}  // namespace singa::cpu
