#include "backend/reference/gemm.h"

#include <limits>

#include "singa/core/error.h"
#include "singa_blas.h"

namespace singa::reference {
namespace {

/// Restricts BLAS to the calling thread. Its own threads would compete with OpenMP's for the same
/// cores.
void OneThreadPerCall() {
#if SINGA_BLAS_OPENBLAS
  static const bool set = (SINGA_BLAS(openblas_set_num_threads)(1), true);
  (void)set;
#endif
}

struct Sizes {
  int m, n, k, lda, ldb, ldc;
};

Sizes CheckedSizes(int64_t m, int64_t n, int64_t k, int64_t lda, int64_t ldb, int64_t ldc) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  Check(m <= kMost && n <= kMost && k <= kMost && lda <= kMost && ldb <= kMost && ldc <= kMost,
        "gemm", "a matrix product of ", m, " x ", k, " by ", k, " x ", n,
        " is too large for this BLAS, which counts in 32 bits");
  return {static_cast<int>(m),   static_cast<int>(n),   static_cast<int>(k),
          static_cast<int>(lda), static_cast<int>(ldb), static_cast<int>(ldc)};
}

CBLAS_TRANSPOSE Transposed(bool yes) { return yes ? CblasTrans : CblasNoTrans; }

}  // namespace

void Gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha, const float* a,
          int64_t lda, const float* b, int64_t ldb, float beta, float* c, int64_t ldc) {
  OneThreadPerCall();
  const Sizes s = CheckedSizes(m, n, k, lda, ldb, ldc);
  SINGA_BLAS(cblas_sgemm)
  (CblasRowMajor, Transposed(trans_a), Transposed(trans_b), s.m, s.n, s.k, alpha, a, s.lda, b,
   s.ldb, beta, c, s.ldc);
}

void Gemm(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
          const double* a, int64_t lda, const double* b, int64_t ldb, double beta, double* c,
          int64_t ldc) {
  OneThreadPerCall();
  const Sizes s = CheckedSizes(m, n, k, lda, ldb, ldc);
  SINGA_BLAS(cblas_dgemm)
  (CblasRowMajor, Transposed(trans_a), Transposed(trans_b), s.m, s.n, s.k, alpha, a, s.lda, b,
   s.ldb, beta, c, s.ldc);
}

}  // namespace singa::reference
