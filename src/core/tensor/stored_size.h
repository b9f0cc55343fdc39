#pragma once

// The memory of a tensor. In an opaque layout the padding counts.

#include <cstdint>

#include "singa/core/dtype.h"
#include "singa/core/tensor.h"

namespace singa {

/// In bytes.
inline int64_t StoredBytes(const Tensor& t) {
  return t.layout() ? static_cast<int64_t>(t.layout()->bytes()) : t.bytes();
}

/// In elements.
inline int64_t StoredSize(const Tensor& t) {
  return StoredBytes(t) / static_cast<int64_t>(SizeOf(t.data_type()));
}

}  // namespace singa
