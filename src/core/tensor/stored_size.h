#pragma once

// The memory of a tensor. In an opaque layout the padding counts.

#include <cstddef>
#include <cstdint>

#include "singa/core/dtype.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// In bytes.
inline size_t StoredBytes(const Tensor& t) {
  return t.layout() ? t.layout()->bytes() : static_cast<size_t>(t.bytes());
}

/// In elements.
inline int64_t StoredSize(const Tensor& t) {
  return static_cast<int64_t>(StoredBytes(t) / SizeOf(t.data_type()));
}

/// Whether there is one element in memory, repeated along all axes by strides of 0.
inline bool IsOneElement(const Shape& shape, const Strides& strides) {
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] > 1 && strides[axis] != 0) return false;
  return true;
}

}  // namespace singa
