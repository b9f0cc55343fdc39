#pragma once

// C (m, n) = A (m, k) · B (k, n), for matrix products and convolutions. Loaders give the elements
// of A and B, and a functor stores those of C. For GPUs without NVIDIA's libraries: simple,
// correct, and an order of magnitude slower than tensor cores.

#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/gemm_grid.h"

namespace singa::cuda {

inline constexpr int kGemmDepth = 16;  ///< of A and B in shared memory at a time
inline constexpr int kGemmThreads = 256;
inline constexpr int kGemmEach = 4;  ///< rows and columns per thread

/// a(batch, i, p) and b(batch, p, j) return elements; store(batch, i, j, value) stores a result.
/// blockIdx.x counts the tiles of C row by row, blockIdx.y counts batches.
template <class C, class A, class B, class Store>
__global__ void __launch_bounds__(kGemmThreads)
    Gemm(int64_t m, int64_t n, int64_t k, int64_t first_batch, A a, B b, Store store) {
  // One element of padding, so that the elements of a column are in different banks.
  constexpr int kRow = kGemmTile + 1;
  SINGA_SHARED(C, kGemmDepth * kRow, a_tile);
  SINGA_SHARED(C, kGemmDepth * kRow, b_tile);
  const unsigned tiles = static_cast<unsigned>((n + kGemmTile - 1) / kGemmTile);
  const int64_t row0 = static_cast<int64_t>(blockIdx.x / tiles) * kGemmTile;
  const int64_t column0 = static_cast<int64_t>(blockIdx.x % tiles) * kGemmTile;
  const int64_t batch = first_batch + blockIdx.y;
  constexpr int kSide = kGemmTile / kGemmEach;
  const int ty = threadIdx.x / kSide, tx = threadIdx.x % kSide;
  C sum[kGemmEach][kGemmEach] = {};
  for (int64_t p0 = 0; p0 < k; p0 += kGemmDepth) {
    for (int e = threadIdx.x; e < kGemmDepth * kGemmTile; e += kGemmThreads) {
      const int p = e % kGemmDepth, i = e / kGemmDepth;
      a_tile[p * kRow + i] =
          row0 + i < m && p0 + p < k ? static_cast<C>(a(batch, row0 + i, p0 + p)) : C(0);
    }
    for (int e = threadIdx.x; e < kGemmDepth * kGemmTile; e += kGemmThreads) {
      const int p = e / kGemmTile, j = e % kGemmTile;
      b_tile[p * kRow + j] =
          column0 + j < n && p0 + p < k ? static_cast<C>(b(batch, p0 + p, column0 + j)) : C(0);
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kGemmDepth; ++p) {
      C left[kGemmEach], right[kGemmEach];
#pragma unroll
      for (int e = 0; e < kGemmEach; ++e) {
        left[e] = a_tile[p * kRow + ty + e * kSide];
        right[e] = b_tile[p * kRow + tx + e * kSide];
      }
#pragma unroll
      for (int i = 0; i < kGemmEach; ++i)
#pragma unroll
        for (int j = 0; j < kGemmEach; ++j) sum[i][j] = std::fma(left[i], right[j], sum[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kGemmEach; ++i) {
#pragma unroll
    for (int j = 0; j < kGemmEach; ++j) {
      const int64_t row = row0 + ty + i * kSide, column = column0 + tx + j * kSide;
      if (row < m && column < n) store(batch, row, column, sum[i][j]);
    }
  }
}

template <class C, class A, class B, class Store>
void LaunchGemm(int64_t batches, int64_t m, int64_t n, int64_t k, Stream stream, const A& a,
                const B& b, const Store& store) {
  for (int64_t first = 0; first < batches; first += kMostGridY)
    Launch(Gemm<C, A, B, Store>, GemmGrid(batches - first, m, n), kGemmThreads, stream, m, n, k,
           first, a, b, store);
}

}  // namespace singa::cuda
