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
  return Call(MakeSpec(op, x.shape(), x.data_type(), axis, log), {x});
}

Tensor Backward(const Tensor& dy, const Tensor& y, int64_t axis, bool log) {
  const char* op = SoftmaxBackwardSpec{{.log = log}}.op();
  CheckFloat(op, "y", y);
  CheckLike(op, "dy", dy, "y", y);
  return Call(SoftmaxBackwardSpec{MakeSpec(op, y.shape(), y.data_type(), axis, log)}, {dy, y});
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

void SoftmaxSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.RequireShape({outer, axis, inner});
}

}  // namespace singa
