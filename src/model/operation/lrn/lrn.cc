#include "singa/operation/lrn.h"

#include <cmath>

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/lrn/spec.h"

namespace singa {
namespace {

void CheckScalars(const char* op, int64_t size, double alpha, double beta, double k) {
  Check(size >= 1, op, "size must be at least 1, got ", size);
  Check(std::isfinite(alpha) && std::isfinite(beta) && std::isfinite(k), op,
        "alpha, beta and k must be finite, got ", alpha, ", ", beta, ", ", k);
}

/// The fields that follow from the arguments of both directions, checked.
LrnFields FieldsOf(const char* op, const Tensor& x, int64_t size, double alpha, double beta,
                   double k) {
  CheckFloat(op, "x", x);
  Check(x.rank() >= 2, op, "x must have shape (N, C, ...), got ", x);
  CheckScalars(op, size, alpha, beta, k);
  return {.shape = x.shape(),
          .dtype = x.data_type(),
          .size = size,
          .alpha = alpha,
          .beta = beta,
          .k = k,
          .x_layout = x.layout()};
}

}  // namespace

std::vector<Tensor> LrnForward(const Tensor& x, int64_t size, double alpha, double beta, double k,
                               bool training) {
  return CallForAll(LrnForwardSpec{FieldsOf("LrnForward", x, size, alpha, beta, k), training}, {x});
}

Tensor LrnBackward(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& saved,
                   int64_t size, double alpha, double beta, double k) {
  const char* op = "LrnBackward";
  const LrnBackwardSpec spec{FieldsOf(op, x, size, alpha, beta, k), FormOf(saved),
                             saved.empty() ? nullptr : saved.layout()};
  CheckLike(op, "dy", dy, "x", x);
  if (!y.empty()) CheckLike(op, "y", y, "x", x);
  return Call(spec, {dy, x, saved});
}

void LrnFields::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.RequireShape(shape);
  call.Require(shape.rank() >= 2, "x must have shape (N, C, ...), got ", shape);
  CheckScalars(call.op(), size, alpha, beta, k);
}

}  // namespace singa
