#include "singa/operation/linalg.h"

#include <algorithm>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/linalg/spec.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/reduce.h"

namespace singa {
namespace {

void CheckFactors(const char* op, const char* a_name, const Tensor& a, const char* b_name,
                  const Tensor& b) {
  CheckFloat(op, a_name, a);
  CheckFloat(op, b_name, b);
  Check<TypeError>(a.data_type() == b.data_type(), op, a_name, " and ", b_name,
                   " differ in type: ", a, ", ", b);
  CheckSameDevice(op, b_name, b, a_name, a);
}

/// A stack of matrices, and whether they are read transposed.
struct Matrices {
  Tensor t;
  bool trans;

  Shape batch() const {
    Shape shape;
    for (int i = 0; i < t.rank() - 2; ++i) shape.push_back(t.shape()[i]);
    return shape;
  }
  int64_t rows() const { return t.shape()[t.rank() - (trans ? 1 : 2)]; }
  int64_t cols() const { return t.shape()[t.rank() - (trans ? 2 : 1)]; }
};

/// Dense matrices. A transposed view becomes the original with `trans` inverted.
Matrices Dense(const Tensor& t, bool trans) {
  if (t.is_blocked() || t.is_contiguous()) return {t.Contiguous(), trans};
  std::vector<int64_t> axes;
  for (int i = 0; i < t.rank(); ++i) axes.push_back(i);
  std::swap(axes[axes.size() - 1], axes[axes.size() - 2]);
  const Tensor turned = t.Transpose(axes);
  if (turned.is_contiguous()) return {turned, !trans};
  return {t.Contiguous(), trans};
}

/// The shape of a stack of (m, n) matrices.
Shape StackShape(const Shape& batch, int64_t m, int64_t n) {
  Shape shape = batch;
  shape.push_back(m);
  shape.push_back(n);
  return shape;
}

Shape LeftPadded(const Shape& shape, int rank) {
  Shape padded = Shape::Filled(rank - shape.rank(), 1);
  for (int64_t dim : shape) padded.push_back(dim);
  return padded;
}

/// Batch shapes of one rank, as short as broadcasting allows.
void SetBatches(MatMulSpec* spec, Shape a, Shape b) {
  const int rank = std::max(a.rank(), b.rank());
  if (a.Count() == 1 || b.Count() == 1 || a == b) {
    const bool any = a.Count() != 1 || b.Count() != 1;
    spec->a_batch = any ? Shape{a.Count()} : Shape{};
    spec->b_batch = any ? Shape{b.Count()} : Shape{};
  } else {
    spec->a_batch = LeftPadded(a, rank);
    spec->b_batch = LeftPadded(b, rank);
  }
}

/// The term that is added to the product: beta · c, broadcast from at most two dimensions.
struct Addend {
  Tensor c;
  double beta = 1;
};

/// alpha · op(a) · op(b) + beta · c, with ReLU if asked. The shapes are checked.
Tensor Product(MatMulKind kind, Matrices a, Matrices b, double alpha = 1, const Addend& addend = {},
               bool relu = false) {
  auto spec = CurrentSpec<MatMulSpec>();
  spec.kind = kind;
  spec.dtype = a.t.data_type();
  spec.m = a.rows();
  spec.k = a.cols();
  spec.n = b.cols();
  spec.alpha = alpha;
  spec.relu = relu;
  const Shape a_batch = a.batch(), b_batch = b.batch();
  const Shape y_shape = StackShape(BroadcastShapes(spec.op(), a_batch, b_batch), spec.m, spec.n);
  CheckShape(spec.op(), y_shape, SizeOf(spec.dtype));
  if (y_shape.Count() == 0) return Tensor(y_shape, a.t.device(), spec.dtype);
  a = Dense(a.t, a.trans);
  b = Dense(b.t, b.trans);
  if (b_batch.Count() == 1 && !a.trans) {  // one tall matrix is faster than many
    spec.m *= a_batch.Count();
    SetBatches(&spec, {}, {});
  } else {
    SetBatches(&spec, a_batch, b_batch);
  }
  spec.trans_a = a.trans;
  spec.trans_b = b.trans;
  Tensor c;
  if (!addend.c.empty() && addend.beta != 0) {
    c = addend.c.Contiguous();
    spec.beta = addend.beta;
    spec.c_rows = c.rank() > 1 ? c.shape()[c.rank() - 2] : 1;
    spec.c_cols = c.rank() > 0 ? c.shape().back() : 1;
  }
  spec.alignment = AlignmentOf({&a.t, &b.t, &c});
  // Call would add a tenth to small products, and there is nothing for it to check.
  const DevicePtr device = a.t.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y(y_shape, device, spec.dtype);
  const Tensor inputs[] = {a.t, b.t, c};
  Run(spec, device, plan, std::span<const Tensor>(inputs, spec.c_rows > 0 ? 3 : 2), {&y, 1});
  return y;
}

/// The gradients of op(a) · op(b), before they are summed over broadcast batches.
Tensor GradientA(MatMulKind kind, const Tensor& dy, const Tensor& b, bool trans_a, bool trans_b,
                 double alpha = 1) {
  if (trans_a) return Product(kind, {b, trans_b}, {dy, true}, alpha);
  return Product(kind, {dy, false}, {b, !trans_b}, alpha);
}
Tensor GradientB(MatMulKind kind, const Tensor& dy, const Tensor& a, bool trans_a, bool trans_b,
                 double alpha = 1) {
  if (trans_b) return Product(kind, {dy, true}, {a, trans_a}, alpha);
  return Product(kind, {a, !trans_a}, {dy, false}, alpha);
}

/// All leading axes as one.
Tensor Tall(const Tensor& t) {
  return t.rank() == 2 ? t : t.Reshape({t.shape().Count(0, t.rank() - 1), t.shape().back()});
}

// Factors of MatMul as matrices: a vector is a row on the left and a column on the right.
Shape LeftShape(const Shape& shape) { return shape.rank() == 1 ? Shape{1, shape[0]} : shape; }
Shape RightShape(const Shape& shape) { return shape.rank() == 1 ? Shape{shape[0], 1} : shape; }

/// Checks two factors. Returns the shape of the result, with vectors as matrices.
Shape CheckMatMul(const char* op, const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  CheckFactors(op, "a", a, "b", b);
  Check(a.rank() >= 1 && b.rank() >= 1, op, "needs vectors or matrices, got a ", a, ", b ", b);
  const Shape as = LeftShape(a.shape()), bs = RightShape(b.shape());
  const int ar = as.rank(), br = bs.rank();
  const bool ta = trans_a && a.rank() > 1, tb = trans_b && b.rank() > 1;
  const int64_t k = as[ar - (ta ? 2 : 1)], kb = bs[br - (tb ? 1 : 2)];
  Check(k == kb, op, "a ", a.shape(), trans_a ? " transposed" : "", " and b ", b.shape(),
        trans_b ? " transposed" : "", " do not fit: ", k, " columns, ", kb, " rows");
  Shape a_batch, b_batch;
  for (int i = 0; i < ar - 2; ++i) a_batch.push_back(as[i]);
  for (int i = 0; i < br - 2; ++i) b_batch.push_back(bs[i]);
  return StackShape(BroadcastShapes(op, a_batch, b_batch), as[ar - (ta ? 1 : 2)],
                    bs[br - (tb ? 2 : 1)]);
}

/// Drops the axes that were added to vectors.
Shape ResultShape(const Tensor& a, const Tensor& b, Shape stacked) {
  if (b.rank() == 1) stacked.erase(stacked.rank() - 1);
  if (a.rank() == 1) stacked.erase(stacked.rank() - (b.rank() == 1 ? 1 : 2));
  return stacked;
}

}  // namespace

Tensor MatMul(const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  const Shape stacked = CheckMatMul("MatMul", a, b, trans_a, trans_b);
  const Tensor y =
      Product(MatMulKind::kMatMul, {a.Reshape(LeftShape(a.shape())), trans_a && a.rank() > 1},
              {b.Reshape(RightShape(b.shape())), trans_b && b.rank() > 1});
  return y.Reshape(ResultShape(a, b, stacked));
}

std::vector<Tensor> MatMulBackward(const Tensor& dy, const Tensor& a, const Tensor& b, bool trans_a,
                                   bool trans_b, bool need_a, bool need_b) {
  constexpr const char* kOp = "MatMulBackward";
  constexpr MatMulKind kKind = MatMulKind::kMatMulBackward;
  const Shape stacked = CheckMatMul(kOp, a, b, trans_a, trans_b);
  CheckFactors(kOp, "dy", dy, "a", a);
  CheckShapeIs(kOp, "dy", dy, ResultShape(a, b, stacked));
  trans_a &= a.rank() > 1;
  trans_b &= b.rank() > 1;
  const Tensor gradient = dy.Reshape(stacked);
  const Tensor left = a.Reshape(LeftShape(a.shape())), right = b.Reshape(RightShape(b.shape()));
  std::vector<Tensor> gradients(2);
  if (need_a)
    gradients[0] =
        SumTo(GradientA(kKind, gradient, right, trans_a, trans_b), left.shape()).Reshape(a.shape());
  if (need_b) {
    // One b for a whole batch of a: its gradient is one product of tall matrices.
    const bool tall = right.rank() == 2 && left.rank() > 2 && !trans_a;
    const Tensor db = tall ? GradientB(kKind, Tall(gradient), Tall(left), trans_a, trans_b)
                           : GradientB(kKind, gradient, left, trans_a, trans_b);
    gradients[1] = SumTo(db, right.shape()).Reshape(b.shape());
  }
  return gradients;
}

namespace {

/// The shape of op(a) · op(b) for matrices.
Shape CheckGemm(const char* op, const Tensor& a, const Tensor& b, bool trans_a, bool trans_b) {
  CheckFactors(op, "A", a, "B", b);
  Check(a.rank() == 2 && b.rank() == 2, op, "needs matrices, got A ", a, ", B ", b);
  return CheckMatMul(op, a, b, trans_a, trans_b);
}

void CheckAddend(const char* op, const Shape& c, const Shape& y) {
  bool fits = c.rank() <= y.rank();
  for (int i = 0; fits && i < c.rank(); ++i) {
    const int64_t have = c[c.rank() - 1 - i];
    fits = have == 1 || have == y[y.rank() - 1 - i];
  }
  Check(fits, op, "C ", c, " does not broadcast to the result ", y);
}

}  // namespace

Tensor Gemm(const Tensor& a, const Tensor& b, const Tensor& c, double alpha, double beta,
            bool trans_a, bool trans_b) {
  constexpr const char* kOp = "Gemm";
  const Shape y_shape = CheckGemm(kOp, a, b, trans_a, trans_b);
  if (!c.empty()) {
    CheckFactors(kOp, "A", a, "C", c);
    CheckAddend(kOp, c.shape(), y_shape);
  }
  return Product(MatMulKind::kGemm, {a, trans_a}, {b, trans_b}, alpha, {c, beta});
}

std::vector<Tensor> GemmBackward(const Tensor& dy, const Tensor& a, const Tensor& b,
                                 const Shape& c_shape, double alpha, double beta, bool trans_a,
                                 bool trans_b, bool need_a, bool need_b, bool need_c) {
  constexpr const char* kOp = "GemmBackward";
  constexpr MatMulKind kKind = MatMulKind::kGemmBackward;
  const Shape y_shape = CheckGemm(kOp, a, b, trans_a, trans_b);
  CheckFactors(kOp, "dy", dy, "A", a);
  CheckShapeIs(kOp, "dy", dy, y_shape);
  std::vector<Tensor> gradients(3);
  if (need_a) gradients[0] = GradientA(kKind, dy, b, trans_a, trans_b, alpha);
  if (need_b) gradients[1] = GradientB(kKind, dy, a, trans_a, trans_b, alpha);
  if (need_c) {
    CheckAddend(kOp, c_shape, y_shape);
    const Tensor sum = SumTo(dy, c_shape);
    gradients[2] = beta == 1 ? sum : Unary(UnaryOp::kMulScalar, sum, beta);
  }
  return gradients;
}

namespace {

/// The shape of y.
Shape CheckLinear(const char* op, const Tensor& x, const Tensor& W, bool weight_transposed) {
  CheckFactors(op, "x", x, "W", W);
  Check(x.rank() >= 2, op, "x must be (N, in), got ", x);
  Check(W.rank() == 2, op, "W must be ", weight_transposed ? "(out, in)" : "(in, out)", ", got ",
        W);
  const int64_t in = W.shape()[weight_transposed ? 1 : 0];
  Check(x.shape().back() == in, op, "x ", x.shape(), " has ", x.shape().back(), " features, W ",
        W.shape(), " takes ", in);
  Shape y_shape = x.shape();
  y_shape[y_shape.rank() - 1] = W.shape()[weight_transposed ? 0 : 1];
  return y_shape;
}

}  // namespace

Tensor LinearForward(const Tensor& x, const Tensor& W, const Tensor& b, bool weight_transposed,
                     bool relu) {
  constexpr const char* kOp = "LinearForward";
  const Shape y_shape = CheckLinear(kOp, x, W, weight_transposed);
  if (!b.empty()) {
    CheckFactors(kOp, "x", x, "b", b);
    CheckShapeIs(kOp, "b", b, {y_shape.back()});
  }
  return Product(MatMulKind::kLinearForward, {Tall(x), false}, {W, weight_transposed}, 1, {b, 1},
                 relu)
      .Reshape(y_shape);
}

std::vector<Tensor> LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                   bool weight_transposed, bool need_x, bool need_w, bool need_b) {
  constexpr const char* kOp = "LinearBackward";
  constexpr MatMulKind kKind = MatMulKind::kLinearBackward;
  const Shape y_shape = CheckLinear(kOp, x, W, weight_transposed);
  CheckFactors(kOp, "dy", dy, "x", x);
  CheckShapeIs(kOp, "dy", dy, y_shape);
  const Tensor gradient = Tall(dy);
  std::vector<Tensor> gradients(3);
  if (need_x)
    gradients[0] = GradientA(kKind, gradient, W, false, weight_transposed).Reshape(x.shape());
  if (need_w) gradients[1] = GradientB(kKind, gradient, Tall(x), false, weight_transposed);
  if (need_b) gradients[2] = SumTo(gradient, {y_shape.back()});
  return gradients;
}

void MatMulSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("a", dtype);
  call.Require(a_batch.rank() == b_batch.rank(), "batches ", a_batch, " and ", b_batch,
               " differ in rank");
  const Shape batches = BroadcastShapes(call.op(), a_batch, b_batch);
  for (const Shape& shape :
       {StackShape(a_batch, m, k), StackShape(b_batch, k, n), StackShape(batches, m, n)})
    call.RequireShape(shape);
  call.Require(batches.Count() == batch_count(), "there is nothing to compute for batches ",
               a_batch, " and ", b_batch);
  call.RequireThreads(threads);
  call.RequireAlignment(alignment);
  call.Require(
      (c_rows == 0 && c_cols == 0) || ((c_rows == 1 || c_rows == m) &&
                                       (c_cols == 1 || c_cols == n) && c_rows > 0 && c_cols > 0),
      "c (", c_rows, ", ", c_cols, ") does not broadcast to (", m, ", ", n, ")");
}

}  // namespace singa
