#include "singa/operation/softmax.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/softmax/spec.h"

namespace singa {
namespace {

SoftmaxSpec MakeSpec(const char* op, const Shape& shape, DType dtype, int64_t axis, bool log) {
  const int along = NormalizeAxis(op, axis, shape.rank());
  return {.outer = shape.Count(0, along),
          .axis = shape[along],
          .inner = shape.Count(along + 1, shape.rank()),
          .dtype = dtype,
          .log = log};
}

Tensor Forward(const Tensor& x, int64_t axis, bool log) {
  const char* op = SoftmaxSpec{.log = log}.op();
  CheckFloat(op, "x", x);
  const SoftmaxSpec spec = MakeSpec(op, x.shape(), x.data_type(), axis, log);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, x.shape(), device, spec.dtype);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {y});
  return y;
}

Tensor Backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log) {
  const char* op = SoftmaxBackwardSpec{{.log = log}}.op();
  CheckFloat(op, "y", y);
  CheckLike(op, "dy", dy, "y", y);
  const SoftmaxBackwardSpec spec{MakeSpec(op, y.shape(), y.data_type(), axis, log)};
  const DevicePtr device = y.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, y.shape(), device, spec.dtype);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, y)}, {dx});
  return dx;
}

}  // namespace

Tensor Softmax(const Tensor& x, int64_t axis) { return Forward(x, axis, false); }

Tensor SoftmaxBackward(const Tensor& dy, const Tensor& y, int64_t axis) {
  return Backward(dy, y, axis, false);
}

Tensor LogSoftmax(const Tensor& x, int64_t axis) { return Forward(x, axis, true); }

Tensor LogSoftmaxBackward(const Tensor& dy, const Tensor& y, int64_t axis) {
  return Backward(dy, y, axis, true);
}

namespace {

/// Elements of each tensor: (outer, axis, inner), in any shape.
int64_t CheckSizes(const SoftmaxSpec& spec, const CallChecker& call) {
  call.RequireFloat("x", spec.dtype);
  const Shape shape{spec.outer, spec.axis, spec.inner};
  call.RequireShape(shape);
  return shape.Count();
}

}  // namespace

void SoftmaxSpec::CheckCall(CallChecker& call) const {
  const int64_t size = CheckSizes(*this, call);
  call.FlatInput("x", size, dtype);
  call.FlatOutput("y", size, dtype);
}

void SoftmaxBackwardSpec::CheckCall(CallChecker& call) const {
  const int64_t size = CheckSizes(*this, call);
  call.FlatInput("dy", size, dtype);
  call.FlatInput("y", size, dtype);
  call.FlatOutput("dx", size, dtype);
}

}  // namespace singa
