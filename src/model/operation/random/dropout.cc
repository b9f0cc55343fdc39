#include "singa/operation/dropout.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/random/spec.h"

namespace singa {

namespace {

void CheckRatio(const char* op, double ratio) {
  Check(ratio >= 0 && ratio < 1, op, "ratio ", ratio, " is not in [0, 1)");
}

}  // namespace

std::vector<Tensor> DropoutForward(const Tensor& x, double ratio) {
  const DropoutSpec spec{x.data_type(), x.layout()};
  CheckFloat(spec.op(), "x", x);
  CheckRatio(spec.op(), ratio);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  Scalars scalars;
  scalars.v[0] = ratio;
  device->TakeRandom(static_cast<uint64_t>(x.size()), &scalars);
  const Tensor y = NewOutput(*plan, 0, x.shape(), device, x.data_type());
  const Tensor mask = NewOutput(*plan, 1, x.shape(), device, kUInt8);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {y, mask}, scalars);
  return {y, mask};
}

Tensor DropoutBackward(const Tensor& dy, const Tensor& mask, double ratio) {
  const DropoutBackwardSpec spec{dy.data_type(), mask.layout()};
  CheckFloat(spec.op(), "dy", dy);
  CheckRatio(spec.op(), ratio);
  CheckShapeIs(spec.op(), "mask", mask, dy.shape());
  CheckDType(spec.op(), "mask", mask, kUInt8);
  CheckSameDevice(spec.op(), "mask", mask, "dy", dy);
  const DevicePtr device = dy.device();
  const PlanPtr plan = FindPlan(*device, spec);
  Scalars scalars;
  scalars.v[0] = ratio;
  const Tensor dx = NewOutput(*plan, 0, dy.shape(), device, dy.data_type());
  Run(spec, device, plan, {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, mask)}, {dx},
      scalars);
  return dx;
}

void DropoutSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  call.RequireFloat("x", dtype);
  CheckRatio(call.op(), call.scalars().v[0]);
  call.Require(skip >= 0, "cannot skip ", skip, " random words");
  call.RequireLayout("x_layout", x_layout, shape, dtype);
  call.Input("x", shape, dtype);
  call.Output("y", shape, dtype);
  call.Output("mask", shape, kUInt8);
}

void DropoutBackwardSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  call.RequireFloat("dy", dtype);
  CheckRatio(call.op(), call.scalars().v[0]);
  call.RequireLayout("mask_layout", mask_layout, shape, kUInt8);
  call.Input("dy", shape, dtype);
  call.Input("mask", shape, kUInt8);
  call.Output("dx", shape, dtype);
}

}  // namespace singa
