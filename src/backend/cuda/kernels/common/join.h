#pragma once

// Joins the values of many threads into one, which all of them receive. The order is fixed, so sums
// have the same bits every time.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {

inline constexpr int kWarpThreads = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Joins the values of a warp. `join` must be commutative, so that both partners of a pair get the
/// same bits.
template <class T, class Join>
__device__ __forceinline__ T JoinWarp(T value, const Join& join) {
#pragma unroll
  for (int bits = kWarpThreads / 2; bits > 0; bits /= 2)
    value = join(value, __shfl_xor_sync(kAllLanes, value, bits));
  return value;
}

/// Joins the values of a one-dimensional block of whole warps.
template <class T, class Join>
__device__ T JoinBlock(T value, T identity, const Join& join) {
  SINGA_SHARED(T, kWarpThreads, of_warp);
  value = JoinWarp(value, join);
  if (blockDim.x == kWarpThreads) return value;
  const unsigned lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  __syncthreads();  // the previous call may still read the array
  if (lane == 0) of_warp[warp] = value;
  __syncthreads();
  value = lane < blockDim.x / kWarpThreads ? of_warp[lane] : identity;
  return JoinWarp(value, join);
}

/// Joins the values of each column of a block. `lanes` neighbouring threads, a power of two up to a
/// warp, have values of kLength columns each; the other threads have further values of the same
/// columns. The first lanes · kLength threads get the result of the column with their number, the
/// others `identity`.
template <int kThreads, int kLength, class T, class Join>
__device__ T JoinColumns(T (&values)[kLength], int lanes, T identity, const Join& join) {
  constexpr int kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(T, kThreads * kLength, of_warp);
  const int thread = static_cast<int>(threadIdx.x), width = lanes * kLength;
  const int lane = thread % kWarpThreads, warp = thread / kWarpThreads;
  for (int bits = kWarpThreads / 2; bits >= lanes; bits /= 2)
#pragma unroll
    for (int c = 0; c < kLength; ++c)
      values[c] = join(values[c], __shfl_xor_sync(kAllLanes, values[c], bits));
  __syncthreads();  // the previous call may still read the array
  if (lane < lanes)
#pragma unroll
    for (int c = 0; c < kLength; ++c) of_warp[warp * width + lane * kLength + c] = values[c];
  __syncthreads();
  T all = identity;
  if (thread < width)
    for (int w = 0; w < kWarps; ++w) all = join(all, of_warp[w * width + thread]);
  return all;
}

/// Number of neighbouring threads that have columns, up to a warp.
inline int LanesFor(int64_t columns, int of_thread) {
  const auto threads = static_cast<uint64_t>((columns + of_thread - 1) / of_thread);
  return static_cast<int>(std::bit_ceil(std::min<uint64_t>(threads, kWarpThreads)));
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
