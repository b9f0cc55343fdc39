#pragma once

// Registers our own CUDA kernels.

#include "backend/cuda/runtime/launch.h"
#include "model/dispatch/kernel.h"

namespace singa::cuda {

inline constexpr char kCuda[] = "cuda";

/// Registers a function that supports every Spec, as in `reference`. It queues kernels on the
/// device's stream. `workspace` may be null (none needed).
template <class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterKernels() {
  RegisterFunction<kCuda, Spec, run, workspace>(DeviceKind::kCuda);
}

}  // namespace singa::cuda
