#pragma once

// Finds our own kernels for the parts of an operation that the library does not compute.

#include <memory>

#include "model/dispatch/kernel.h"
#include "singa/core/tensor.h"

namespace singa::cudnn {

/// The plan of the first kernel that supports the Spec; null if there is none.
template <class Spec>
PlanPtr OwnKernel(const Spec& spec) {
  for (const Kernel& kernel : KernelsOf<Spec>(DeviceKind::kCuda))
    if (const PlanOrReason made = kernel.Make(spec)) return made.plan();
  return nullptr;
}

/// A plain tensor over memory that the caller owns.
inline Tensor PlainAt(const DevicePtr& device, void* data, const Shape& shape, DType dtype) {
  const auto bytes = static_cast<size_t>(shape.Count()) * SizeOf(dtype);
  return Tensor(std::make_shared<Block>(device, data, bytes, [] {}), shape,
                ContiguousStrides(shape), 0, dtype);
}

}  // namespace singa::cudnn
