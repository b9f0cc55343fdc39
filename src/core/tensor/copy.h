#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// dst[i] = src[i] for all elements; types are converted by Convert (dtype_switch.h). Both tensors
/// are plain, in host memory, and of equal shape. Strides are arbitrary; those of src may be 0
/// (broadcast). If the two overlap, all of src is read first. Does not count as a write
/// (Block::Touch).
void StridedCopy(const Tensor& src, const Tensor& dst);

/// True if `t` is plain and its elements lie as in `layout`, which has its shape: a permuted view
/// of rows of features is a channels-last image.
bool LiesAs(const Tensor& t, const LayoutPtr& layout);

/// dst[i] = value, converted by Convert.
void StridedFill(const Tensor& dst, double value);

/// True if writing dst element by element may change elements of src that have not been read yet:
/// the two share memory, but not as the same elements in the same order. False for tensors of
/// different blocks. May be true for views that interleave without overlapping.
SINGA_API bool OverlapsPartly(const Tensor& src, const Tensor& dst);

}  // namespace singa
