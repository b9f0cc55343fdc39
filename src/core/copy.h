#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// dst[i] = src[i] for every element, converting the type as Convert (dtype_switch.h) does. Equal
/// shapes, both plain and in host memory; any strides, src's may be zero (broadcast). The two may
/// overlap: src is then read first, as a whole. Does not count as a write (Block::Touch) by itself.
void StridedCopy(const Tensor& src, const Tensor& dst);

/// dst[i] = value, converted likewise.
void StridedFill(const Tensor& dst, double value);

}  // namespace singa
