#include "singa/operation/sort.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/sort/spec.h"

namespace singa {

std::vector<Tensor> TopK(const Tensor& x, int64_t k, int64_t axis, bool largest) {
  const char* op = "TopK";
  CheckGiven(op, "x", x);
  const int a = NormalizeAxis(op, axis, x.rank());
  Check(k >= 0 && k <= x.shape()[a], op, "k must be in [0, ", x.shape()[a],
        "], the length of axis ", axis, " of x ", x.shape(), ", got ", k);
  const TopKSpec spec{AxisLines(x.shape(), a), x.data_type(), k, largest};
  Shape shape = x.shape();
  shape[a] = k;
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor values = NewOutput(*plan, 0, shape, device, x.data_type());
  const Tensor indices = NewOutput(*plan, 1, shape, device, kInt64);
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {values, indices});
  return {values, indices};
}

Tensor CumSum(const Tensor& given, int64_t axis, bool exclusive, bool reverse) {
  const char* op = "CumSum";
  CheckGiven(op, "x", given);
  const Tensor x = IsFloat(given.data_type()) ? given : given.AsType(kInt64);
  const CumSumSpec spec{AxisLines(x.shape(), NormalizeAxis(op, axis, x.rank())), x.data_type(),
                        exclusive, reverse};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, x.shape(), device, x.data_type());
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x)}, {y});
  return y;
}

namespace {

/// The number of elements.
int64_t CheckLines(const AxisLines& lines, const CallChecker& call) {
  const Shape shape{lines.outer, lines.length, lines.inner};
  call.RequireShape(shape);
  return shape.Count();
}

}  // namespace

void TopKSpec::CheckCall(CallChecker& call) const {
  const int64_t size = CheckLines(*this, call);
  call.Require(k >= 0 && k <= length, "k ", k, " is not in [0, ", length, "]");
  call.FlatInput("x", size, dtype);
  call.FlatOutput("values", outer * k * inner, dtype);
  call.FlatOutput("indices", outer * k * inner, kInt64);
}

void CumSumSpec::CheckCall(CallChecker& call) const {
  const int64_t size = CheckLines(*this, call);
  call.Require(IsFloat(dtype) || dtype == kInt64, "x must be of a float type or int64, got ",
               DTypeName(dtype));
  call.FlatInput("x", size, dtype);
  call.FlatOutput("y", size, dtype);
}

}  // namespace singa
