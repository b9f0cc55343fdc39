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
  return CallForAll(spec, {x}, {.shape = &shape});
}

Tensor CumSum(const Tensor& given, int64_t axis, bool exclusive, bool reverse) {
  const char* op = "CumSum";
  CheckGiven(op, "x", given);
  const Tensor x = IsFloat(given.data_type()) ? given : given.AsType(kInt64);
  const CumSumSpec spec{AxisLines(x.shape(), NormalizeAxis(op, axis, x.rank())), x.data_type(),
                        exclusive, reverse};
  return Call(spec, {x});
}

void AxisLines::CheckFields(const CallChecker& call) const {
  call.RequireShape({outer, length, inner});
}

void TopKSpec::CheckFields(const CallChecker& call) const {
  AxisLines::CheckFields(call);
  call.Require(k >= 0 && k <= length, "k ", k, " is not in [0, ", length, "]");
}

void CumSumSpec::CheckFields(const CallChecker& call) const {
  AxisLines::CheckFields(call);
  call.Require(IsFloat(dtype) || dtype == kInt64, "x must be of a float type or int64, got ",
               DTypeName(dtype));
}

}  // namespace singa
