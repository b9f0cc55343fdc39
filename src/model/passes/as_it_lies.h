#pragma once

#include <cstdint>
#include <cstring>
#include <memory>

#include "core/tensor/stored_size.h"
#include "singa/core/device.h"
#include "singa/core/tensor.h"

namespace singa {

/// The memory of a dense tensor as a vector, whatever the layout of its elements, padding included.
/// It must not outlive `t`.
inline Tensor AsItLies(const Tensor& t) {
  const auto block =
      std::make_shared<Block>(t.device(), t.raw_data(), static_cast<size_t>(StoredBytes(t)), [] {});
  return Tensor(block, {StoredSize(t)}, {1}, 0, t.data_type());
}

/// A copy of the first `elements` elements of that, on the CPU.
inline Tensor CopyAsItLies(const Tensor& t, int64_t elements) {
  Tensor copy({elements}, t.device(), t.data_type());
  std::memcpy(copy.raw_data(), t.raw_data(), static_cast<size_t>(elements) * SizeOf(t.data_type()));
  return copy;
}

}  // namespace singa
