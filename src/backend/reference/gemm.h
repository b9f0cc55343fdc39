#pragma once

#include <algorithm>
#include <cstdint>

#include "core/device/parallel.h"

namespace singa::reference {

/// C (m, n) = alpha · op(A) (m, k) · op(B) (k, n) + beta · C, row-major, on the calling thread.
/// Throws std::invalid_argument for sizes beyond the range of BLAS's integers. With beta = 0, C is
/// not read.
void Gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc);
void Gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
          const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
          int64_t ldc);

/// Multiply-adds that justify another thread.
inline constexpr int64_t kGemmGrain = int64_t{1} << 17;

/// Calls body(item, slot) for each item in [0, n) on at most `slots` threads. Concurrent calls have
/// different slots: indices of the `slots` pieces of the plan's scratch memory.
template <class Body>
void ParallelItems(int64_t n, int64_t slots, int64_t work_per_item, const Body& body) {
  if (n <= 0) return;
  const int64_t per_piece = std::max<int64_t>(1, kGemmGrain / std::max<int64_t>(1, work_per_item));
  const int64_t worth = n / per_piece, threads = std::clamp<int64_t>(worth, 1, std::min(slots, n));
  const int64_t pieces = threads * std::clamp<int64_t>(worth / threads, 1, kPiecesOfShare);
  singa::ParallelItems(pieces, threads, [&](Items& items) {
    for (const int64_t piece : items)
      for (int64_t i = n * piece / pieces; i < n * (piece + 1) / pieces; ++i)
        body(i, items.thread());
  });
}

}  // namespace singa::reference
