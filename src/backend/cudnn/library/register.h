#pragma once

namespace singa::cudnn {

// One function per family, in the family's file; alphabetical.
void RegisterConv();
void RegisterMatMul();
void RegisterReorder();
void RegisterRnn();

/// Offers the kernels of cuDNN and cuBLASLt, and their layout, to the registry of CUDA devices.
void RegisterLibraries();

}  // namespace singa::cudnn
