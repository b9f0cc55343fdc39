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

DType BaseType(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

}  // namespace

std::vector<Tensor> LrnForward(const Tensor& x, int64_t size, double alpha, double beta, double k,
                               bool training) {
  const LrnForwardSpec spec{FieldsOf("LrnForward", x, size, alpha, beta, k), training};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  Tensor saved;
  if (training) saved = NewOutput(*plan, 1, spec.shape, device, BaseType(spec.dtype));
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {y, saved});
  return {y, saved};
}

Tensor LrnBackward(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& saved,
                   int64_t size, double alpha, double beta, double k) {
  const char* op = "LrnBackward";
  const LrnBackwardSpec spec{FieldsOf(op, x, size, alpha, beta, k), FormOf(saved),
                             saved.empty() ? nullptr : saved.layout()};
  CheckLike(op, "dy", dy, "x", x);
  if (!y.empty()) CheckLike(op, "y", y, "x", x);
  if (spec.saved == SavedForm::kCommon) {
    CheckShapeIs(op, "saved", saved, x.shape());
    CheckDType(op, "saved", saved, BaseType(x.data_type()));
  }
  CheckSameDevice(op, "saved", saved, "x", x);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, x), InPlanLayout(*plan, 2, saved)}, {dx});
  return dx;
}

namespace {

void CheckFields(const LrnFields& spec, const CallChecker& call) {
  call.RequireFloat("x", spec.dtype);
  call.RequireShape(spec.shape);
  call.Require(spec.shape.rank() >= 2, "x must have shape (N, C, ...), got ", spec.shape);
  CheckScalars(call.op(), spec.size, spec.alpha, spec.beta, spec.k);
  call.RequireLayout("x_layout", spec.x_layout, spec.shape, spec.dtype);
}

}  // namespace

void LrnForwardSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  call.Input("x", shape, dtype);
  call.Output("y", shape, dtype);
  call.SavedOutputIf(save, "saved", shape, BaseType(dtype));
}

void LrnBackwardSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  call.Input("dy", shape, dtype);
  call.Input("x", shape, dtype);
  const Tensor& kept = call.NextInput("saved");
  call.Require(FormOf(kept) == saved, "saved is in another form than the one named: ", kept);
  if (saved == SavedForm::kCommon) {
    CheckShapeIs(call.op(), "saved", kept, shape);
    call.Require(kept.data_type() == BaseType(dtype), "saved must be ", DTypeName(BaseType(dtype)),
                 ", got ", kept);
  }
  call.RequireLayout("saved_layout", saved_layout, kept.shape(), kept.data_type());
  call.Output("dx", shape, dtype);
}

}  // namespace singa
