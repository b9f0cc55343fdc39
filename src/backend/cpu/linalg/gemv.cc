#include "backend/cpu/linalg/gemv.h"

#include "model/dispatch/kernel.h"

#include <algorithm>
#include <memory>

#include "core/device/parallel.h"

namespace singa::cpu {
namespace {

/// Matrix elements per partial sum. The pieces depend on the shape alone, so results do not depend
/// on the number of threads.
constexpr int64_t kPiece = 2 * kParallelGrain;

// y[j] = sum over `rows` rows of x[i] · m[i][j]. Four rows at a time share one load and store of y.
SINGA_MULTI_ISA void SumRows(const float* x, const float* m, int64_t rows, int64_t columns,
                             float* y) {
  std::fill_n(y, columns, 0.0f);
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) {
    const float* row = m + i * columns;
    const float x0 = x[i], x1 = x[i + 1], x2 = x[i + 2], x3 = x[i + 3];
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j)
      y[j] += (x0 * row[j] + x1 * row[columns + j]) +
              (x2 * row[2 * columns + j] + x3 * row[3 * columns + j]);
  }
  for (; i < rows; ++i)
#pragma GCC ivdep
    for (int64_t j = 0; j < columns; ++j) y[j] += x[i] * m[i * columns + j];
}

// y[i] = sum over j of x[j] · m[i][j], for kRows rows, in lanes for the vector units.
template <int kRows>
inline void DotRows(const float* x, const float* m, int64_t columns, float* y) {
  constexpr int64_t kLanes = 16;
  float sums[kRows][kLanes] = {};
  const int64_t body = columns / kLanes * kLanes;
  for (int64_t j = 0; j < body; j += kLanes)
    for (int i = 0; i < kRows; ++i)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        sums[i][lane] += x[j + lane] * m[i * columns + j + lane];
  for (int i = 0; i < kRows; ++i) {
    float rest = 0;
    for (int64_t j = body; j < columns; ++j) rest += x[j] * m[i * columns + j];
    for (int64_t width = kLanes / 2; width > 0; width /= 2)
      for (int64_t lane = 0; lane < width; ++lane) sums[i][lane] += sums[i][lane + width];
    y[i] = sums[i][0] + rest;
  }
}

SINGA_MULTI_ISA void Dots(const float* x, const float* m, int64_t rows, int64_t columns, float* y) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) DotRows<4>(x, m + i * columns, columns, y + i);
  for (; i < rows; ++i) DotRows<1>(x, m + i * columns, columns, y + i);
}

SINGA_MULTI_ISA void Outer(const float* a, const float* b, int64_t rows, int64_t n, float* y) {
  for (int64_t i = 0; i < rows; ++i)
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) y[i * n + j] = a[i] * b[j];
}

// y = x + bias (null: none), then ReLU if `relu`. x may be y.
SINGA_MULTI_ISA void Finish(const float* x, const float* bias, bool relu, int64_t n, float* y) {
  for (int64_t i = 0; i < n; ++i) {
    const float value = bias ? x[i] + bias[i] : x[i];
    y[i] = relu && value <= 0.0f ? 0.0f : value;
  }
}

/// y (m, n) = a bᵀ.
class OuterPlan final : public Plan {
 public:
  explicit OuterPlan(const MatMulSpec& spec) : Plan("cpu"), spec_(spec) {}
  std::string Describe() const override { return "cpu outer product"; }
  void Run(const Execution& execution) const override {
    const auto *a = execution.in<float>(0), *b = execution.in<float>(1);
    const float* bias = spec_.c_rows > 0 ? execution.in<float>(2) : nullptr;
    auto* y = execution.out<float>(0);
    const int64_t n = spec_.n;
    ParallelFor(spec_.m, kParallelGrain / n + 1, [&](int64_t begin, int64_t end) {
      Outer(a + begin, b, end - begin, n, y + begin * n);
      for (int64_t i = begin; (bias || spec_.relu) && i < end; ++i)
        Finish(y + i * n, bias, spec_.relu, n, y + i * n);
    });
  }

 private:
  MatMulSpec spec_;
};

/// Product of a vector and a matrix of `rows` by `columns`. It sums the rows, weighted by the
/// vector, or computes the dot product of each row and the vector.
class VectorPlan final : public Plan {
 public:
  explicit VectorPlan(const MatMulSpec& spec)
      : Plan("cpu"), bias_(spec.c_rows > 0), relu_(spec.relu) {
    left_ = spec.m == 1;
    sums_rows_ = left_ ? !spec.trans_b : spec.trans_a;
    rows_ = left_ ? spec.n : spec.m;
    columns_ = spec.k;
    if (sums_rows_) std::swap(rows_, columns_);
    per_piece_ = std::max<int64_t>(1, kPiece / columns_);
    pieces_ = (rows_ + per_piece_ - 1) / per_piece_;
  }
  std::string Describe() const override { return "cpu product with a vector"; }
  size_t workspace_bytes() const override {
    return sums_rows_ && pieces_ > 1 ? static_cast<size_t>(pieces_ * columns_) * sizeof(float) : 0;
  }

  void Run(const Execution& execution) const override {
    const float* x = execution.in<float>(left_ ? 0 : 1);
    const float* matrix = execution.in<float>(left_ ? 1 : 0);
    const float* bias = bias_ ? execution.in<float>(2) : nullptr;
    auto* y = execution.out<float>(0);
    if (!sums_rows_) {
      ParallelFor(rows_, kParallelGrain / columns_ + 1, [&](int64_t begin, int64_t end) {
        Dots(x, matrix + begin * columns_, end - begin, columns_, y + begin);
        Finish(y + begin, bias ? bias + begin : nullptr, relu_, end - begin, y + begin);
      });
      return;
    }
    auto* partial = pieces_ > 1 ? static_cast<float*>(execution.workspace) : y;
    ParallelFor(pieces_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t piece = begin; piece < end; ++piece) {
        const int64_t first = piece * per_piece_, last = std::min(rows_, first + per_piece_);
        SumRows(x + first, matrix + first * columns_, last - first, columns_,
                partial + piece * columns_);
      }
    });
    for (int64_t piece = 1; piece < pieces_; ++piece)
      Finish(partial, partial + piece * columns_, false, columns_, partial);
    Finish(partial, bias, relu_, columns_, y);
  }

 private:
  bool bias_, relu_;
  bool left_, sums_rows_;
  int64_t rows_, columns_;
  int64_t per_piece_, pieces_;
};

}  // namespace

bool IsProductOfVectors(const MatMulSpec& s) {
  const bool plain = s.dtype == kFloat32 && s.alpha == 1 && s.batch_count() == 1;
  // c must be a row of the result.
  const bool adds_row = s.c_rows == 0 || (s.c_rows == 1 && s.c_cols == s.n && s.beta == 1);
  if (!plain || !adds_row || s.k == 0) return false;
  return s.k == 1 || s.m == 1 || (s.n == 1 && s.c_rows == 0);
}

namespace {

std::string Refuses(const MatMulSpec& spec) {
  return IsProductOfVectors(spec) ? "" : "no side is a vector";
}

PlanOrReason Make(const MatMulSpec& spec) {
  if (spec.k == 1) return std::make_shared<OuterPlan>(spec);
  return std::make_shared<VectorPlan>(spec);
}

}  // namespace

SINGA_KERNELS(cpu) {
  Register<MatMulSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make, .priority = 1});
}

}  // namespace singa::cpu
