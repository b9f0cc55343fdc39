// Matrix products without cuBLAS.

#include "backend/cuda/kernels/common/gemm.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/linalg/spec.h"

namespace singa::cuda {
namespace {

/// The matrix of a batch (whose axes may be 1) that belongs to matrix `index` of the result.
struct Batches {
  int rank;
  int64_t length[kMaxRank];  ///< of the result
  bool moves[kMaxRank];
  __device__ int64_t Of(int64_t index) const {
    int64_t at = 0, stride = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (moves[i]) {
        at += index % length[i] * stride;
        stride *= length[i];
      }
      index /= length[i];
    }
    return at;
  }
};

Batches BatchesOf(const MatMulSpec& spec, const Shape& batch) {
  Batches batches{batch.rank(), {}, {}};
  for (int i = 0; i < batch.rank(); ++i) {
    batches.length[i] = spec.batch(i);
    batches.moves[i] = batch[i] > 1;
  }
  return batches;
}

template <class T>
struct Matrix {
  const T* data;
  Batches batches;
  int64_t rows, columns;
  bool transposed;  ///< stored as (columns, rows)
  __device__ ComputeType<T> operator()(int64_t batch, int64_t i, int64_t j) const {
    const T* matrix = data + batches.Of(batch) * rows * columns;
    return Cast<ComputeType<T>>(matrix[transposed ? j * rows + i : i * columns + j]);
  }
};

template <class T>
struct Result {
  using C = ComputeType<T>;
  T* y;
  const T* c;  ///< may be null
  int64_t m, n, c_rows, c_columns;
  C alpha, beta;
  bool relu;
  __device__ void operator()(int64_t batch, int64_t i, int64_t j, C value) const {
    value *= alpha;
    if (c) value += beta * Cast<C>(c[(c_rows > 1 ? i * c_columns : 0) + (c_columns > 1 ? j : 0)]);
    if (relu && value <= C(0)) value = 0;
    y[(batch * m + i) * n + j] = Cast<T>(value);
  }
};

void Run(const MatMulSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const T* c = spec.c_rows > 0 ? execution.in<T>(2) : nullptr;
    LaunchGemm<C>(
        spec.batch_count(), spec.m, spec.n, spec.k, StreamOf(execution.device),
        Matrix<T>{execution.in<T>(0), BatchesOf(spec, spec.a_batch), spec.m, spec.k, spec.trans_a},
        Matrix<T>{execution.in<T>(1), BatchesOf(spec, spec.b_batch), spec.k, spec.n, spec.trans_b},
        Result<T>{execution.out<T>(0), c, spec.m, spec.n, spec.c_rows, spec.c_cols,
                  static_cast<C>(spec.alpha), static_cast<C>(spec.beta), spec.relu});
  });
}

}  // namespace

SINGA_KERNELS(cuda) { RegisterKernels<MatMulSpec, Run>(); }

}  // namespace singa::cuda
