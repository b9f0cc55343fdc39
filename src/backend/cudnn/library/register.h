#pragma once

namespace singa::cudnn {

// One function per family, in the family's file; alphabetical.
void RegisterBatchNorm();
void RegisterConv();
void RegisterMatMul();
void RegisterReorder();
void RegisterRnn();

/// Offers the kernels of cuDNN and cuBLASLt, and their layout, to the registry of CUDA devices:
/// those that come before our own kernels, ...
void RegisterLibraries();
/// ... and those that come behind them, and are taken where they were measured to be faster.
void RegisterAlternatives();

}  // namespace singa::cudnn
