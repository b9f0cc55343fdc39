// Matrix products. Matrices stay row-major (or transposed by their strides): most are used once,
// and a reorder would read all of a matrix for no gain.

#include <algorithm>
#include <cmath>

#include "backend/onednn/engine.h"
#include "model/dispatch/kernel.h"
#include "model/operation/linalg/spec.h"

namespace singa::onednn {
namespace {

using dnnl::memory;

/// Multiply-adds below which oneDNN's call overhead exceeds the work. BLAS starts faster.
constexpr int64_t kWorthwhile = 16 * 16 * 16;

/// A stack of (rows, cols) matrices, stored transposed if `trans`.
memory::desc Stack(const Shape& batch, int64_t rows, int64_t cols, bool trans, DType dtype) {
  Shape shape = batch;
  shape.push_back(rows);
  shape.push_back(cols);
  Strides strides = ContiguousStrides(shape);
  if (trans) {
    strides[strides.rank() - 2] = 1;
    strides[strides.rank() - 1] = rows;
  }
  return memory::desc(Dims(shape), DataTypeOf(dtype), Dims(strides));
}

struct Descs {
  explicit Descs(const MatMulSpec& s)
      : a(Stack(s.a_batch, s.m, s.k, s.trans_a, s.dtype)),
        b(Stack(s.b_batch, s.k, s.n, s.trans_b, s.dtype)) {
    Shape batch;
    for (int i = 0; i < s.a_batch.rank(); ++i) batch.push_back(s.batch(i));
    y = Stack(batch, s.m, s.n, false, s.dtype);
    if (s.c_rows > 0) c = Stack(Shape::Filled(batch.rank(), 1), s.c_rows, s.c_cols, false, s.dtype);
  }
  memory::desc a, b, c, y;
};

/// True if c is a row with factor 1, which oneDNN adds as a bias. Any other c is added by a
/// post-op.
bool AddsBias(const MatMulSpec& s) {
  return s.c_rows == 1 && s.c_cols == s.n && s.alpha == 1 && s.beta == 1;
}

/// Computes alpha · ab + beta · c as beta · (alpha / beta · ab + c). `added`: the position of c's
/// post-op.
dnnl::primitive_attr Attributes(const MatMulSpec& s, const Descs& d, int* added) {
  dnnl::primitive_attr attr = ScratchpadAttr();
  dnnl::post_ops after;
  auto scale = [&after](double factor) {
    if (factor != 1)
      after.append_eltwise(dnnl::algorithm::eltwise_linear, static_cast<float>(factor), 0);
  };
  if (s.c_rows > 0 && !AddsBias(s)) {
    scale(s.alpha / s.beta);
    *added = after.len();
    after.append_binary(dnnl::algorithm::binary_add, d.c);
    scale(s.beta);
  } else {
    scale(s.alpha);
  }
  attr.set_post_ops(after);
  return attr;
}

dnnl::matmul::primitive_desc Choose(const MatMulSpec& s, const Descs& d, int* added) {
  dnnl::matmul::primitive_desc pd(Engine(), d.a, d.b, AddsBias(s) ? d.c : memory::desc(), d.y,
                                  Attributes(s, d, added), true);
  if (!SkipReference(&pd)) return {};
  return pd;
}

/// Several threads if the multiplications are worth it, or the elements: a product with few
/// multiplications per element is bound by memory.
int ThreadsFor(const MatMulSpec& s) {
  const int64_t count = s.batch_count();
  const int64_t elements = count * (s.m * s.k + s.k * s.n + s.m * s.n);
  return std::max(ThreadsWorth(count * s.m * s.n * s.k, kMultiplyAddsWorthThreads),
                  ThreadsWorth(elements, kElementsWorthThreads));
}

std::string Refuses(const MatMulSpec& s) {
  if (std::string reason = RefusesFloat(s.dtype); !reason.empty()) return reason;
  if (s.k == 0) return "sums of nothing";
  if (s.dtype == kFloat32 && s.batch_count() * s.m * s.n * s.k < kWorthwhile)
    return "too small to be worth the call";
  if (s.c_rows > 0 && !std::isnormal(static_cast<float>(s.alpha / s.beta)) && s.alpha != 0)
    return "alpha / beta is out of range";
  return "";
}

PlanOrReason Make(const MatMulSpec& s) {
  return Guarded(s.op(), ThreadsFor(s), [&]() -> PlanOrReason {
    const Descs d(s);
    int added = -1;
    const auto pd = Choose(s, d, &added);
    if (!pd) return OnlyReference();
    std::vector<Argument> inputs = {{DNNL_ARG_SRC, d.a, nullptr}, {DNNL_ARG_WEIGHTS, d.b, nullptr}};
    if (AddsBias(s))
      inputs.push_back({DNNL_ARG_BIAS, d.c, nullptr});
    else if (s.c_rows > 0)
      inputs.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(added) | DNNL_ARG_SRC_1, d.c, nullptr});
    auto plan =
        std::make_shared<PrimitivePlan>(s.op(), pd, dnnl::matmul(pd), std::move(inputs),
                                        std::vector<Argument>{{DNNL_ARG_DST, d.y, nullptr}});
    if (s.relu) plan->AddActivation(true);
    return plan;
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<MatMulSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::onednn
