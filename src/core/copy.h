#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// dst[i] = src[i] for every element, converting the type as Convert (dtype_switch.h) does. Equal
/// shapes, both plain and in host memory; any strides, src's may be zero (broadcast). The two may
/// overlap: src is then read first, as a whole. Does not count as a write (Block::Touch) by itself.
void StridedCopy(const Tensor& src, const Tensor& dst);

/// dst[i] = value, converted likewise.
void StridedFill(const Tensor& dst, double value);

/// True when writing dst element by element may change elements of src that are still to be read:
/// they share memory, and not as the same elements in the same order. Never true for tensors of
/// different blocks; may be true for views that interleave without touching.
SINGA_API bool OverlapsPartly(const Tensor& src, const Tensor& dst);

}  // namespace singa
