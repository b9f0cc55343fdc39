#pragma once

// What a file of kernels (*.cu) is written against. nvcc makes CUDA of it; any other compiler makes
// a program for the host that runs the very same sources thread by thread (emulated/), so that
// kernels are tested on machines without a GPU.
//
// Beside CUDA's own names (threadIdx, __syncthreads, __shfl_xor_sync, ...) a kernel uses
//
// - SINGA_SHARED(T, count, name): an array in shared memory; indices are checked on the host;
// - SINGA_CALLED: before a long function, which is compiled once, however often it is used;
// - SINGA_CONSTANT(T) name: a large parameter, which no thread gets a copy of;
// - VectorAt<V>(address): several elements there as one V, whose size divides the address: checked;
// - StoreSame(address, value): where other threads of the kernel may store the same value there;
// - Launch(Kernel<T>, grid, block, stream, arguments...);
// - LaunchIndependent(...): likewise, for kernels whose threads never meet: quicker on the host.
//
// A launch with an empty grid does nothing. nvcc is told not to contract products and sums
// (-fmad=false), so that a kernel computes what the same source computes on the host; loops where
// that matters for speed say std::fma.

#include <cstdint>

#include "backend/cudnn/runtime.h"
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
#include "backend/cudnn/emulated/emulator.h"
#endif

namespace singa::cuda {

/// Blocks of `threads` threads that cover `n` elements with `per_thread` each, as far as a grid
/// goes; kernels step through the rest.
inline dim3 GridFor(int64_t n, int threads, int per_thread = 1) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t blocks = (n + int64_t{threads} * per_thread - 1) / (int64_t{threads} * per_thread);
  return dim3(static_cast<unsigned>(blocks < kMost ? blocks : kMost));
}

}  // namespace singa::cuda
