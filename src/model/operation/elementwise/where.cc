#include <cmath>

#include "core/layout/in_type.h"
#include "core/tensor/copy.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/elementwise/spec.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/reduce.h"

namespace singa {

namespace {

void CheckAlpha(double alpha, const Tensor& x, const Tensor& y) {
  Check<TypeError>(
      IsFloat(y.data_type()) || (!IsFloat(x.data_type()) && alpha == std::trunc(alpha)), "Axpy",
      "alpha ", alpha, " times x ", x, " does not fit into y ", y);
}

}  // namespace

Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y) {
  CheckGiven("Where", "condition", condition);
  CheckGiven("Where", "x", x);
  CheckGiven("Where", "y", y);
  CheckSameDevice("Where", "x", x, "condition", condition);
  CheckSameDevice("Where", "y", y, "condition", condition);
  const Shape shape =
      BroadcastShapes("Where", BroadcastShapes("Where", condition.shape(), x.shape()), y.shape());
  const WhereSpec spec{ResultType(x, y)};
  const DevicePtr device = condition.device();
  const Tensor result(shape, device, spec.dtype);
  Run(spec, device, FindPlan(*device, spec),
      {condition.Plain().Broadcast(shape), x.Plain().Broadcast(shape), y.Plain().Broadcast(shape)},
      {result});
  return result;
}

std::vector<Tensor> WhereBackward(const Tensor& dy, const Tensor& condition, const Shape& x_shape,
                                  const Shape& y_shape, bool need_x, bool need_y) {
  CheckFloat("WhereBackward", "dy", dy);
  const Tensor zero = Full({}, 0, dy.device(), dy.data_type());
  std::vector<Tensor> gradients(2);
  if (need_x) gradients[0] = SumTo(Where(condition, dy, zero), x_shape);
  if (need_y) gradients[1] = SumTo(Where(condition, zero, dy), y_shape);
  return gradients;
}

void Axpy(double alpha, const Tensor& x, const Tensor& y) {
  CheckGiven("Axpy", "x", x);
  CheckGiven("Axpy", "y", y);
  Check(x.shape() == y.shape(), "Axpy", "x ", x, " and y ", y, " must be of one shape");
  CheckSameDevice("Axpy", "x", x, "y", y);
  CheckDistinct("Axpy", "y", y);
  CheckAlpha(alpha, x, y);
  Tensor in = x;
  if (x.layout() || y.layout()) {
    const bool together = x.data_type() == y.data_type() && std::isfinite(alpha);
    if (!together) y.block()->MakePlain();
    in = InLayoutOrStrided(x, y.layout());
  }
  if (OverlapsPartly(in, y)) in = in.Clone();
  const AxpySpec spec{Promote(x.data_type(), y.data_type())};
  Scalars scalars;
  scalars.v[0] = alpha;
  Run(spec, y.device(), FindPlan(*y.device(), spec), {in, y}, {y}, scalars);
}

void Axpy(const Tensor& alpha, const Tensor& x, const Tensor& y) {
  CheckGiven("Axpy", "alpha", alpha);
  Check(alpha.size() == 1, "Axpy", "alpha must be a number or a tensor of one element, got ",
        alpha);
  CheckGiven("Axpy", "x", x);
  CheckGiven("Axpy", "y", y);
  Check(x.shape() == y.shape(), "Axpy", "x ", x, " and y ", y, " must be of one shape");
  // With axes, so that the product has the wider type.
  const Tensor factor = alpha.Reshape(Shape::Filled(x.rank(), 1));
  BinaryInto(BinaryOp::kAdd, y, Binary(BinaryOp::kMul, x, factor), y);
}

void WhereSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  const DType x = call.TypeOfInput(1), y = call.TypeOfInput(2);
  call.Input("condition", shape, call.TypeOfInput(0), {.strided = true});
  call.Input("x", shape, x, {.strided = true});
  call.Input("y", shape, y, {.strided = true});
  call.Require(IsResultType(dtype, x, y), "is not computed in ", DTypeName(dtype), " for ",
               DTypeName(x), " and ", DTypeName(y));
  call.Output("result", shape, dtype);
}

void AxpySpec::CheckCall(CallChecker& call) const {
  const double alpha = call.scalars().v[0];
  const Shape shape = call.ShapeOfInput(0);
  call.Input("x", shape, call.TypeOfInput(0), {.strided = true});
  call.Input("y", shape, call.TypeOfInput(1), {.strided = true});
  const Tensor &x = call.input(0), &y = call.input(1);
  call.Require(dtype == Promote(x.data_type(), y.data_type()), "is not computed in ",
               DTypeName(dtype), " for ", x, " and ", y);
  CheckAlpha(alpha, x, y);
  call.Output("y", shape, y.data_type(), {.strided = true, .same_as = 1});
  call.Elementwise(std::isfinite(alpha));
}

}  // namespace singa
