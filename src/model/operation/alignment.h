#pragma once

#include <cstdint>
#include <initializer_list>

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/tensor.h"

namespace singa {

/// Kernels of a GPU load so many bytes at once where they can.
inline constexpr int kVectorBytes = 16;

/// The largest power of two up to kVectorBytes at whose multiples all these tensors begin; empty
/// ones count for nothing. Always kVectorBytes on a CPU, whose plans do not depend on it. Blocks
/// themselves begin at multiples of 64.
inline int AlignmentOf(std::initializer_list<const Tensor*> tensors) {
  uint64_t places = kVectorBytes;
  for (const Tensor* t : tensors)
    if (!t->empty() && !t->layout() && t->device()->kind() != DeviceKind::kCpu)
      places |= static_cast<uint64_t>(t->offset()) * SizeOf(t->data_type());
  return static_cast<int>(places & (~places + 1));
}

}  // namespace singa
