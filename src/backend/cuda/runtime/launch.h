#pragma once

// Included by all kernel files (*.cu). nvcc compiles them to CUDA. Any other compiler makes a host
// program that runs the same sources thread by thread (test/emulated_gpu), so kernels can be tested
// without a GPU.
//
// In addition to CUDA's own names (threadIdx, __syncthreads, __shfl_xor_sync, ...), kernels use
//
// - SINGA_SHARED(T, count, name): an array in shared memory; the host build checks indices;
// - SINGA_CALLED: marks a long function that is compiled once and called, not inlined;
// - SINGA_CONSTANT(T) name: a large parameter that threads do not copy;
// - VectorAt<V>(address): several elements as one V; its size must divide the address, which is
//   checked;
// - StoreSame(address, value): a store of a value that other threads may store there as well;
// - Launch(Kernel<T>, grid, block, stream, arguments...);
// - LaunchIndependent(...): the same for kernels without synchronisation, which is faster on the
//   host.
//
// A launch with an empty grid does nothing. nvcc must not contract products and sums (-fmad=false),
// so that a kernel computes the same values as on the host. Loops that need fused multiply-adds for
// speed use std::fma.

#include <cstdint>

#include "backend/cuda/runtime/runtime.h"
#include "singa/core/device.h"

#if defined(__CUDACC__)

#include <cuda_runtime.h>

#define SINGA_SHARED(T, count, name) __shared__ T name[count]
#define SINGA_CALLED __noinline__
#define SINGA_CONSTANT(...) const __grid_constant__ __VA_ARGS__

namespace singa::cuda {

template <class V, class T>
__device__ __forceinline__ V* VectorAt(T* address) {
  return reinterpret_cast<V*>(address);
}

template <class T>
__device__ __forceinline__ void StoreSame(T* address, T value) {
  *address = value;
}

template <class... Parameters, class... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream stream,
            const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  kernel<<<grid, block, 0, stream>>>(static_cast<Parameters>(arguments)...);
  if (const cudaError_t status = cudaGetLastError(); status != cudaSuccess)
    throw Error(cudaGetErrorString(status));
}

template <class... Parameters, class... Arguments>
void LaunchIndependent(void (*kernel)(Parameters...), dim3 grid, dim3 block, Stream stream,
                       const Arguments&... arguments) {
  Launch(kernel, grid, block, stream, arguments...);
}

}  // namespace singa::cuda

#else
#include "emulated_gpu/emulator.h"
#endif

namespace singa::cuda {

/// A grid of blocks with `threads` threads that covers `n` elements, `per_thread` each, up to the
/// largest grid. Kernels loop over the rest.
inline dim3 GridFor(int64_t n, int threads, int per_thread = 1) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t blocks = (n + int64_t{threads} * per_thread - 1) / (int64_t{threads} * per_thread);
  return dim3(static_cast<unsigned>(blocks < kMost ? blocks : kMost));
}

}  // namespace singa::cuda
