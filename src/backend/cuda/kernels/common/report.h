#pragma once

#include "backend/cuda/runtime/faults.h"
#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {

/// Reports a fault to the host. Only the first thread's report is kept.
__device__ inline void Report(Fault* fault, FaultKind kind, double value, int64_t position,
                              int64_t low, int64_t high) {
  if (atomicCAS(&fault->claimed, 0, 1) != 0) return;
  fault->value = value;
  fault->position = position;
  fault->low = low;
  fault->high = high;
  __threadfence_system();  // the host may read while the kernel runs
  fault->kind = static_cast<int>(kind);
}

}  // namespace singa::cuda
