#pragma once

// The memory of a tensor. In an opaque layout the padding counts.

#include <cstddef>
#include <cstdint>

#include "singa/core/dtype.h"
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

}  // namespace singa
