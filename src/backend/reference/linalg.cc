// Matrix products. Each is divided into blocks by its shape alone, and each block is one BLAS call
// on one thread, so results do not depend on the number of threads.

#include <algorithm>

#include "backend/reference/arguments.h"
#include "backend/reference/gemm.h"
#include "model/dispatch/kernel.h"
#include "model/operation/linalg/spec.h"

namespace singa::reference {
namespace {

constexpr int64_t kBlockRows = 192;
constexpr int64_t kBlockColumns = 512;

/// The matrix of `batch` (whose axes may be 1) that belongs to matrix `index` of the broadcast
/// result.
int64_t BatchOf(const MatMulSpec& spec, const Shape& batch, int64_t index) {
  int64_t at = 0, stride = 1;
  for (int i = batch.rank() - 1; i >= 0; --i) {
    const int64_t position = index % spec.batch(i);
    index /= spec.batch(i);
    if (batch[i] > 1) at += position * stride;
    stride *= batch[i];
  }
  return at;
}

template <class T>
void Multiply(const MatMulSpec& s, const T* a, const T* b, const T* c, T* y) {
  const int64_t row_blocks = (s.m + kBlockRows - 1) / kBlockRows;
  const int64_t column_blocks = (s.n + kBlockColumns - 1) / kBlockColumns;
  const int64_t lda = s.trans_a ? s.m : s.k, ldb = s.trans_b ? s.k : s.n;
  const int64_t work = std::min(s.m, kBlockRows) * std::min(s.n, kBlockColumns) * s.k;
  ParallelItems(
      s.batch_count() * row_blocks * column_blocks, s.threads, work, [&](int64_t item, int64_t) {
        const int64_t j0 = item % column_blocks * kBlockColumns;
        const int64_t i0 = item / column_blocks % row_blocks * kBlockRows;
        const int64_t matrix = item / column_blocks / row_blocks;
        const int64_t rows = std::min(kBlockRows, s.m - i0);
        const int64_t columns = std::min(kBlockColumns, s.n - j0);
        T* out = y + (matrix * s.m + i0) * s.n + j0;
        for (int64_t i = 0; i < rows; ++i) {
          T* row = out + i * s.n;
          if (!c) {
            if (s.k == 0) std::fill_n(row, columns, T(0));
          } else {
            const T* added = c + (s.c_rows > 1 ? (i0 + i) * s.c_cols : 0);
            if (s.c_cols > 1)
              std::copy_n(added + j0, columns, row);
            else
              std::fill_n(row, columns, *added);
            if (s.k == 0)
              for (int64_t j = 0; j < columns; ++j) row[j] *= static_cast<T>(s.beta);
          }
        }
        if (s.k > 0) {
          const T* left = a + BatchOf(s, s.a_batch, matrix) * s.m * s.k;
          const T* right = b + BatchOf(s, s.b_batch, matrix) * s.k * s.n;
          Gemm(s.trans_a, s.trans_b, rows, columns, s.k, static_cast<T>(s.alpha),
               left + (s.trans_a ? i0 : i0 * lda), lda, right + (s.trans_b ? j0 * ldb : j0), ldb,
               c ? static_cast<T>(s.beta) : T(0), out, s.n);
        }
        for (int64_t i = 0; s.relu && i < rows; ++i)
          for (T* v = out + i * s.n; v < out + i * s.n + columns; ++v) *v = *v <= T(0) ? T(0) : *v;
      });
}

size_t Workspace(const MatMulSpec& s) {
  return ArgumentBytes(s.dtype, {s.a_batch.Count() * s.m * s.k, s.b_batch.Count() * s.k * s.n,
                                 s.c_rows * s.c_cols, s.batch_count() * s.m * s.n});
}

void Run(const MatMulSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    Arguments<T> a(execution);  // in[2] is null without c
    Multiply(spec, a.in[0], a.in[1], a.in[2], a.out[0]);
    a.Store();
  });
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<MatMulSpec, Run, Workspace>(); }

}  // namespace singa::reference
