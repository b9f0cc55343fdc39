#include "singa/operation/lrn.h"

#include <cmath>

#include "model/operation/check.h"
#include "model/operation/dispatch.h"
#include "model/operation/lrn_spec.h"

namespace singa {
namespace {

void CheckArguments(const char* op, const Tensor& x, int64_t size, double alpha, double beta,
                    double k) {
  CheckFloat(op, "x", x);
  Check(x.rank() >= 2, op, "x has to have shape (N, C, ...), got ", x);
  Check(size >= 1, op, "size has to be at least 1, got ", size);
  Check(std::isfinite(alpha) && std::isfinite(beta) && std::isfinite(k), op,
        "alpha, beta and k have to be finite, got ", alpha, ", ", beta, ", ", k);
}

DType BaseType(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

}  // namespace

std::vector<Tensor> LrnForward(const Tensor& x, int64_t size, double alpha, double beta, double k,
                               bool training) {
  CheckArguments("LrnForward", x, size, alpha, beta, k);
  const LrnForwardSpec spec{.shape = x.shape(),
                            .dtype = x.data_type(),
                            .size = size,
                            .alpha = alpha,
                            .beta = beta,
                            .k = k,
                            .save = training,
                            .x_layout = x.layout()};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  Tensor saved;
  if (training) saved = NewOutput(*plan, 1, spec.shape, device, BaseType(spec.dtype));
  Run(spec, device, plan, {Wanted(*plan, 0, x)}, {y, saved});
  return {y, saved};
}

Tensor LrnBackward(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& saved,
                   int64_t size, double alpha, double beta, double k) {
  const char* op = "LrnBackward";
  CheckArguments(op, x, size, alpha, beta, k);
  CheckLike(op, "dy", dy, "x", x);
  if (!y.empty()) CheckLike(op, "y", y, "x", x);
  if (FormOf(saved) == SavedForm::kCommon) {
    CheckShapeIs(op, "saved", saved, x.shape());
    CheckDType(op, "saved", saved, BaseType(x.data_type()));
  }
  CheckSameDevice(op, "saved", saved, "x", x);
  const LrnBackwardSpec spec{.shape = x.shape(),
                             .dtype = x.data_type(),
                             .size = size,
                             .alpha = alpha,
                             .beta = beta,
                             .k = k,
                             .saved = FormOf(saved),
                             .saved_layout = saved.empty() ? nullptr : saved.layout(),
                             .x_layout = x.layout()};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  Run(spec, device, plan, {Wanted(*plan, 0, dy), Wanted(*plan, 1, x), Wanted(*plan, 2, saved)},
      {dx});
  return dx;
}

}  // namespace singa
