#pragma once

#include <cmath>

#include "core/tensor/alignment.h"
#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa {

/// The operation that the product belongs to. All are computed alike.
enum class MatMulKind : int {
  kMatMul,
  kMatMulBackward,
  kGemm,
  kGemmBackward,
  kLinearForward,
  kLinearBackward,
};
template <>
inline constexpr int kEnumSize<MatMulKind> = 6;

/// y (batch, m, n) = alpha · op(a) · op(b) + beta · c, and with `relu` ReLU of that. a is
/// (a_batch, m, k), or (a_batch, k, m) with trans_a; b is (b_batch, k, n), or (b_batch, n, k) with
/// trans_b. The batch shapes have the same rank and broadcast. c is there where c_rows > 0; it is
/// (c_rows, c_cols), each 1 or the length in y.
struct MatMulSpec {
  MatMulKind kind = MatMulKind::kMatMul;
  DType dtype = kFloat32;
  Shape a_batch;
  Shape b_batch;
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool trans_a = false;
  bool trans_b = false;
  double alpha = 1;
  double beta = 1;
  int64_t c_rows = 0;
  int64_t c_cols = 0;
  bool relu = false;
  int threads = 1;
  int alignment = kVectorBytes;  ///< of the arguments: see alignment.h

  const char* op() const {
    switch (kind) {
      case MatMulKind::kMatMul:
        return "MatMul";
      case MatMulKind::kMatMulBackward:
        return "MatMulBackward";
      case MatMulKind::kGemm:
        return "Gemm";
      case MatMulKind::kGemmBackward:
        return "GemmBackward";
      case MatMulKind::kLinearForward:
        return "LinearForward";
      case MatMulKind::kLinearBackward:
        return "LinearBackward";
    }
    return "MatMul";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("a", {a_batch.Count() * m * k}, dtype, {.flat = true});
    visit.Input("b", {b_batch.Count() * k * n}, dtype, {.flat = true});
    visit.Input("c", {c_rows * c_cols}, dtype, {.left_out = c_rows == 0, .flat = true});
    visit.Output("y", {batch_count() * m * n}, dtype, {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  void Sample(spot::Sampler& sampler) const;

  int64_t batch(int i) const { return a_batch[i] > b_batch[i] ? a_batch[i] : b_batch[i]; }
  int64_t batch_count() const {
    int64_t count = 1;
    for (int i = 0; i < a_batch.rank(); ++i) count *= batch(i);
    return count;
  }

  int64_t multiply_adds() const { return batch_count() * m * n * k; }  ///< for the profile

  // For OPCHECK: sums of k products. The same sums of |inputs| bound the error. ReLU makes no error
  // larger.
  static constexpr bool kLinear = true;
  int64_t sum_length() const { return k + 1; }
  void MakeMagnitude() {
    alpha = std::abs(alpha);
    beta = std::abs(beta);
  }

  static constexpr bool kMeasured = true;
  SINGA_FIELDS(kind, dtype, a_batch, b_batch, m, n, k, trans_a, trans_b, alpha, beta, c_rows,
               c_cols, relu, threads, alignment);
};

}  // namespace singa
