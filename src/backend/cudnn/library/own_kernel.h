#pragma once

// Our own kernels for a part of what is left to a library.

#include <memory>

#include "model/operation/kernel.h"
#include "singa/core/tensor.h"

namespace singa::cudnn {

/// The first kernel that takes it; null where there is none.
template <class Spec>
PlanPtr OwnKernel(const Spec& spec) {
  for (const Kernel<Spec>* kernel : Registry<Spec>::Get(DeviceKind::kCuda).kernels())
    if (kernel->Refuses(spec).empty()) return kernel->MakePlan(spec);
  return nullptr;
}

/// Memory that somebody else holds, as a plain tensor.
inline Tensor PlainAt(const DevicePtr& device, void* data, const Shape& shape, DType dtype) {
  const auto bytes = static_cast<size_t>(shape.Count()) * SizeOf(dtype);
  return Tensor(std::make_shared<Block>(device, data, bytes, [] {}), shape,
                ContiguousStrides(shape), 0, dtype);
}

}  // namespace singa::cudnn
