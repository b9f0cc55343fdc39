#pragma once

// Shared by both passes of a recurrent network: groups of sequences, and matrix products divided
// into blocks.

#include <algorithm>

#include "backend/reference/gemm.h"
#include "model/operation/rnn/spec.h"
#include "singa/core/plan.h"

namespace singa::reference {

/// Sequences that go through the steps together. Fixed, so that the computation of a sequence does
/// not depend on the number of threads.
constexpr int64_t kSequenceGroup = 16;

/// C = op(A)·op(B) + beta·C on all threads, by blocks of rows of C. The blocks depend on the sizes
/// alone.
template <class T>
void GemmByRows(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, const T* a,
                int64_t lda, const T* b, int64_t ldb, T beta, T* c, int64_t ldc) {
  constexpr int64_t kBlockWork = int64_t{1} << 22;
  const int64_t block = std::clamp<int64_t>(kBlockWork / std::max<int64_t>(1, n * k), 32, 1024);
  const int64_t blocks = (m + block - 1) / block;
  ParallelFor(blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * block; i < std::min(m, end * block); i += block)
      Gemm(trans_a, trans_b, std::min(block, m - i), n, k, T(1), a + (trans_a ? i : i * lda), lda,
           b, ldb, beta, c + i * ldc, ldc);
  });
}

/// Calls run(direction, first, last) on all threads, for groups of sequences of each direction.
template <class Run>
void ForEachGroup(const RnnFields& fields, const Run& run) {
  const int64_t groups = (fields.batch + kSequenceGroup - 1) / kSequenceGroup;
  const int64_t work = fields.steps * kSequenceGroup * fields.gate_rows() * fields.hidden;
  ParallelFor(fields.directions * groups, std::max<int64_t>(1, kGemmGrain / work),
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t first = i % groups * kSequenceGroup;
                  run(i / groups, first, std::min(fields.batch, first + kSequenceGroup));
                }
              });
}

}  // namespace singa::reference
