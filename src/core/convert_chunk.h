#pragma once

// Conversion of short runs of elements, by function pointer: a kernel that is written for its
// compute type alone (float, double, int32_t or int64_t) reads and writes every storage type.

#include <cstdint>

#include "singa/core/dtype.h"

namespace singa {

/// Elements converted at a time by those who use a buffer; it stays in the first-level cache.
inline constexpr int64_t kChunk = 512;

/// out[i] = source[offset + i·stride] for i in [0, n), converted as Convert (dtype_switch.h) does.
template <class C>
using LoadChunkFn = void (*)(const void* source, int64_t offset, int64_t stride, int64_t n, C* out);
/// out[offset + i·stride] = values[i].
template <class C>
using StoreChunkFn = void (*)(const C* values, int64_t n, void* out, int64_t offset,
                              int64_t stride);

/// C is one of float, double, int32_t, int64_t; `dtype` is any.
template <class C>
LoadChunkFn<C> FindLoad(DType dtype);
template <class C>
StoreChunkFn<C> FindStore(DType dtype);
/// Loads 1 for elements that are not zero, else 0.
template <class C>
LoadChunkFn<C> FindTruthLoad(DType dtype);

}  // namespace singa
