#pragma once

#include <cstdint>
#include <initializer_list>

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/tensor.h"

namespace singa {

/// Bytes that a GPU's kernels load at once where the address allows it.
inline constexpr int kVectorBytes = 16;

/// The largest power of two, up to kVectorBytes, that divides the addresses of all these tensors.
/// Empty tensors are ignored. On a CPU, whose plans do not depend on it, it is always kVectorBytes.
/// Blocks begin at multiples of 64.
inline int AlignmentOf(std::initializer_list<const Tensor*> tensors) {
  uint64_t places = kVectorBytes;
  for (const Tensor* t : tensors)
    if (!t->empty() && !t->layout() && t->device()->kind() != DeviceKind::kCpu)
      places |= static_cast<uint64_t>(t->offset()) * SizeOf(t->data_type());
  return static_cast<int>(places & (~places + 1));
}

}  // namespace singa
