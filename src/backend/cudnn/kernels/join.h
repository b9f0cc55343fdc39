#pragma once

// Values of many threads joined into one, which all of them get. The order of the joins is fixed,
// so sums have the same bits every time.

#include "backend/cudnn/launch.h"

namespace singa::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Of a warp. `join` has to be commutative: both partners of a pair then have the same bits.
template <class T, class Join>
__device__ __forceinline__ T JoinWarp(T value, const Join& join) {
#pragma unroll
  for (int bits = kWarpThreads / 2; bits > 0; bits /= 2)
    value = join(value, __shfl_xor_sync(kAllLanes, value, bits));
  return value;
}

/// Of a one-dimensional block of whole warps.
template <class T, class Join>
__device__ T JoinBlock(T value, T identity, const Join& join) {
  SINGA_SHARED(T, kWarpThreads, of_warp);
  value = JoinWarp(value, join);
  if (blockDim.x == kWarpThreads) return value;
  const unsigned lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  __syncthreads();  // the array may still be read from the last time
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarpThreads ? of_warp[lane] : identity;
  return JoinWarp(value, join);
}

struct Plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

template <class T>
__device__ __forceinline__ T SumBlock(T value) {
  return JoinBlock(value, T(0), Plus());
}

}  // namespace singa::cuda
