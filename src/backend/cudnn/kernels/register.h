#pragma once

// Our own CUDA kernels in the registry, one function per file of kernels; alphabetical.

#include "backend/cudnn/launch.h"
#include "model/operation/kernel.h"

namespace singa::cuda {

inline constexpr char kCuda[] = "cuda";

/// Registers kernels that take every spec, as `reference` does: a function that queues them on the
/// device's stream. `workspace` may be null (none needed).
template <class Spec, void (*run)(const Spec&, const Execution&),
          size_t (*workspace)(const Spec&) = nullptr>
void RegisterKernels() {
  RegisterFunction<kCuda, Spec, run, workspace>(DeviceKind::kCuda);
}

void RegisterArgReduce();
void RegisterAxisMap();
void RegisterBatchNorm();
void RegisterBinary();
void RegisterConv();
void RegisterFoldBatchNorm();
void RegisterGather();
void RegisterIndexing();
void RegisterLoss();
void RegisterLrn();
void RegisterMatMul();
void RegisterOptimizer();
void RegisterPairLoss();
void RegisterPooling();
void RegisterRandom();
void RegisterReduce();
void RegisterSoftmax();
void RegisterUnary();
void RegisterWhere();

/// All of them.
void RegisterKernels();

}  // namespace singa::cuda
