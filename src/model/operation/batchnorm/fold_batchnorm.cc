#include <cmath>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/check.h"
#include "singa/operation/batchnorm.h"

namespace singa {

std::vector<Tensor> FoldBatchNorm(const Tensor& W, const Tensor& b, const Tensor& scale,
                                  const Tensor& bias, const Tensor& running_mean,
                                  const Tensor& running_var, double epsilon) {
  FoldBatchNormSpec spec;
  const char* op = spec.op();
  CheckFloat(op, "W", W);
  Check(W.rank() >= 2, op, "W must have shape (out, ...), got ", W);
  Check(epsilon >= 0 && std::isfinite(epsilon), op, "epsilon must be finite and not negative, got ",
        epsilon);
  const Shape channels{W.shape(0)};
  const auto check = [&](const char* name, const Tensor& t, DType dtype) {
    CheckShapeIs(op, name, t, channels);
    CheckDType(op, name, t, dtype);
    CheckSameDevice(op, name, t, "W", W);
  };
  const DType statistics = StatisticsType(W.data_type());
  if (!b.empty()) check("b", b, W.data_type());
  if (!scale.empty()) check("scale", scale, statistics);
  if (!bias.empty()) check("bias", bias, statistics);
  check("running_mean", running_mean, statistics);
  check("running_var", running_var, statistics);

  spec.filters = W.shape(0);
  spec.length = W.shape().Count(1, W.rank());
  spec.dtype = W.data_type();
  spec.epsilon = epsilon;
  const DevicePtr device = W.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor filter = NewOutput(*plan, 0, W.shape(), device, spec.dtype);
  const Tensor shift = NewOutput(*plan, 1, channels, device, spec.dtype);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, W), InPlanLayout(*plan, 1, b), InPlanLayout(*plan, 2, scale),
       InPlanLayout(*plan, 3, bias), InPlanLayout(*plan, 4, running_mean),
       InPlanLayout(*plan, 5, running_var)},
      {filter, shift});
  return {filter, shift};
}

void FoldBatchNormSpec::CheckCall(CallChecker& call) const {
  const DType statistics = StatisticsType(dtype);
  const Shape matrix{filters, length}, channels{filters};
  call.RequireFloat("W", dtype);
  call.RequireShape(matrix);
  call.Require(epsilon >= 0 && std::isfinite(epsilon),
               "epsilon must be finite and not negative, got ", epsilon);
  call.FlatInput("W", matrix.Count(), dtype);
  call.OptionalInput("b", channels, dtype);
  call.OptionalInput("scale", channels, statistics);
  call.OptionalInput("bias", channels, statistics);
  call.Input("running_mean", channels, statistics);
  call.Input("running_var", channels, statistics);
  call.FlatOutput("W'", matrix.Count(), dtype);
  call.Output("b'", channels, dtype);
}

}  // namespace singa
