#pragma once

// Conversion of short runs of elements through function pointers. A kernel that is written only for
// its compute type (float, double, int32_t or int64_t) can then read and write all storage types.

#include <cstdint>

#include "singa/core/dtype.h"

namespace singa {

/// Size of a conversion buffer in elements; it fits into the first-level cache.
inline constexpr int64_t kChunk = 512;

/// out[i] = source[offset + i·stride] for i in [0, n), converted as Convert (dtype_switch.h) does.
template <class C>
using LoadChunkFn = void (*)(const void* source, int64_t offset, int64_t stride, int64_t n, C* out);
/// out[offset + i·stride] = values[i].
template <class C>
using StoreChunkFn = void (*)(const C* values, int64_t n, void* out, int64_t offset,
                              int64_t stride);

/// The function that converts between `dtype` and C. C is float, double, int32_t or int64_t.
template <class C>
LoadChunkFn<C> FindLoad(DType dtype);
template <class C>
StoreChunkFn<C> FindStore(DType dtype);
/// The function that loads 1 for non-zero elements, else 0.
template <class C>
LoadChunkFn<C> FindTruthLoad(DType dtype);

}  // namespace singa
