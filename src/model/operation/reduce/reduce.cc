#include "singa/operation/reduce.h"

#include <array>

#include "model/dispatch/dispatch.h"
#include "model/operation/channels_last.h"
#include "model/operation/check.h"
#include "model/operation/reduce/spec.h"

namespace singa {

namespace {

struct Names {
  const char* forward;
  const char* backward;
};
constexpr std::array<Names, static_cast<size_t>(ReduceOp::kCount)> kNames = {{
    {"ReduceSum", "ReduceSumBackward"},
    {"ReduceMean", "ReduceMeanBackward"},
    {"ReduceMax", "ReduceMaxBackward"},
    {"ReduceMin", "ReduceMinBackward"},
    {"ReduceProd", "ReduceProdBackward"},
    {"ReduceL1", "ReduceL1Backward"},
    {"ReduceL2", "ReduceL2Backward"},
    {"ReduceSumSquare", "ReduceSumSquareBackward"},
}};

const Names& NamesOf(ReduceOp op) {
  const auto i = static_cast<size_t>(op);
  Check(i < kNames.size(), "Reduce", "unknown reduction ", static_cast<int>(op));
  return kNames[i];
}

bool IsExtremum(ReduceOp op) { return op == ReduceOp::kMax || op == ReduceOp::kMin; }

uint32_t AxesMask(const char* op, const Tensor& x, const std::vector<int64_t>& axes) {
  if (axes.empty()) return (uint32_t{1} << x.rank()) - 1;
  uint32_t mask = 0;
  for (int64_t axis : axes) {
    if (x.rank() == 0 && axis >= -1 && axis <= 0) continue;  // of a number, as in PyTorch
    const uint32_t bit = uint32_t{1} << NormalizeAxis(op, axis, x.rank());
    Check((mask & bit) == 0, op, "axis ", axis, " appears twice for shape ", x.shape());
    mask |= bit;
  }
  return mask;
}

Shape ReducedShape(const Shape& shape, uint32_t mask, bool keepdims) {
  Shape reduced;
  for (int i = 0; i < shape.rank(); ++i) {
    if ((mask >> i & 1) == 0) {
      reduced.push_back(shape[i]);
    } else if (keepdims) {
      reduced.push_back(1);
    }
  }
  return reduced;
}

// Sums and products of integers and bools are int64, as in NumPy.
DType ResultType(ReduceOp op, DType dtype) {
  return IsFloat(dtype) || IsExtremum(op) ? dtype : kInt64;
}

// The types that the kernels know besides floats are int32 and int64.
Tensor Widened(ReduceOp op, const Tensor& x) {
  const DType dtype = x.data_type();
  if (IsFloat(dtype) || dtype == kInt32 || dtype == kInt64) return x.Plain();
  return x.AsType(IsExtremum(op) ? kInt32 : kInt64);
}

void CheckNumber(DType dtype, const CallChecker& call) {
  call.Require(IsFloat(dtype) || dtype == kInt32 || dtype == kInt64,
               "x must be widened to int32 or int64, got ", DTypeName(dtype));
}

template <class Spec>
void CheckReduction(const Spec& spec, const CallChecker& call) {
  call.RequireShape(spec.shape);
  CheckNumber(spec.dtype, call);
  call.Require(spec.axes >> spec.shape.rank() == 0, "axes ", spec.axes, " are not those of shape ",
               spec.shape);
}

Tensor ReduceTo(ReduceOp op, const Tensor& given, uint32_t mask, const Shape& out_shape) {
  if (op == ReduceOp::kSum && HasChannelsInside(given)) {
    const DType dtype = given.data_type();
    const uint32_t axes = AxesBesideChannels(given.shape());
    const ReduceSpec spec{op, dtype, dtype, given.shape(), axes, given.layout()};
    if (mask == axes) return Call(spec, {given}, {.shape = &out_shape});
    // Sums of 16-bit floats would be rounded once for each channel.
    if (mask == (axes | 2u) && SizeOf(dtype) > 2) {
      const Shape channels = {given.shape(1)};
      return ReduceTo(op, Call(spec, {given}, {.shape = &channels}), 1, out_shape);
    }
  }
  const DType result = ResultType(op, given.data_type());
  const Tensor x = Widened(op, given);
  const DType dtype = x.data_type();
  const ReduceSpec spec{op, dtype, IsExtremum(op) ? dtype : result, x.shape(), mask};
  return Call(spec, {x}, {.shape = &out_shape}).AsType(result);
}

Tensor ArgReduce(bool largest, const Tensor& given, int64_t axis, bool keepdims) {
  const char* op = largest ? "ArgMax" : "ArgMin";
  CheckGiven(op, "x", given);
  if (given.rank() == 0 && axis >= -1 && axis <= 0)
    return ArgReduce(largest, given.Reshape({1}), axis, false);
  const Tensor x = Widened(ReduceOp::kMax, given);
  const int a = NormalizeAxis(op, axis, x.rank());
  Check(x.shape()[a] > 0, op, "axis ", axis, " of x ", x.shape(), " has no elements");
  const ArgReduceSpec spec{largest, x.data_type(), x.shape(), a};
  const Shape y_shape = ReducedShape(x.shape(), uint32_t{1} << a, keepdims);
  return Call(spec, {x}, {.shape = &y_shape});
}

}  // namespace

const char* ReduceSpec::op() const { return NamesOf(reduce).forward; }
const char* ReduceBackwardSpec::op() const { return NamesOf(reduce).backward; }

Tensor Reduce(ReduceOp op, const Tensor& x, const std::vector<int64_t>& axes, bool keepdims) {
  const char* name = NamesOf(op).forward;
  CheckGiven(name, "x", x);
  const uint32_t mask = AxesMask(name, x, axes);
  Check<TypeError>(IsFloat(x.data_type()) || (op != ReduceOp::kMean && op != ReduceOp::kL2), name,
                   "needs a float type, got ", x);
  const Shape shape = ReducedShape(x.shape(), mask, keepdims);
  Check(!IsExtremum(op) || x.size() > 0 || shape.Count() == 0, name, "x ", x.shape(),
        " has no elements along the reduced axes");
  return ReduceTo(op, x, mask, shape);
}

Tensor ReduceBackward(ReduceOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                      const std::vector<int64_t>& axes, bool keepdims) {
  const char* name = NamesOf(op).backward;
  CheckFloat(name, "x", x);
  const uint32_t mask = AxesMask(name, x, axes);
  const Shape y_shape = ReducedShape(x.shape(), mask, keepdims);
  const auto spread = [&](const char* argument, const Tensor& t) {
    CheckShapeIs(name, argument, t, y_shape);
    CheckDType(name, argument, t, x.data_type());
    CheckSameDevice(name, argument, t, "x", x);
    return t.Plain().Reshape(ReducedShape(x.shape(), mask, true)).Broadcast(x.shape());
  };
  const Tensor wide_dy = spread("dy", dy);
  const bool needs_y = IsExtremum(op) || op == ReduceOp::kL2;
  const Tensor wide_y = needs_y ? spread("y", y) : wide_dy;
  return Call(ReduceBackwardSpec{op, x.data_type(), x.shape(), mask}, {wide_dy, x, wide_y});
}

Tensor SumTo(const Tensor& x, const Shape& shape) {
  CheckGiven("SumTo", "x", x);
  if (x.shape() == shape) return x;
  const int extra = x.rank() - shape.rank();
  bool fits = extra >= 0;
  uint32_t mask = 0;
  for (int i = 0; fits && i < x.rank(); ++i) {
    const bool same = i >= extra && shape[i - extra] == x.shape()[i];
    if (!same) mask |= uint32_t{1} << i;
    fits = same || i < extra || shape[i - extra] == 1;
  }
  Check(fits, "SumTo", "shape ", shape, " does not broadcast to x ", x.shape());
  return ReduceTo(ReduceOp::kSum, x, mask, shape);
}

Tensor ArgMax(const Tensor& x, int64_t axis, bool keepdims) {
  return ArgReduce(true, x, axis, keepdims);
}

Tensor ArgMin(const Tensor& x, int64_t axis, bool keepdims) {
  return ArgReduce(false, x, axis, keepdims);
}

int64_t CountTopK(const Tensor& scores, const Tensor& labels, int64_t k) {
  const char* op = "CountTopK";
  CheckFloat(op, "scores", scores);
  CheckGiven(op, "labels", labels);
  Check(scores.rank() == 2, op, "scores must be (N, C), got ", scores);
  CheckShapeIs(op, "labels", labels, {scores.shape()[0]});
  Check<TypeError>(labels.data_type() == kInt32 || labels.data_type() == kInt64, op,
                   "labels must be int32 or int64, got ", labels);
  Check(k >= 1, op, "k must be at least 1, got ", k);
  const CountTopKSpec spec{scores.data_type(), labels.data_type(), scores.shape()[0],
                           scores.shape()[1], k};
  int64_t value = 0;
  Call(spec, {scores, labels}).CopyToHost(&value, sizeof(value));
  return value;
}

void ReduceSpec::VisitArguments(ArgumentVisitor& visit) const {
  visit.Input("x", shape, dtype, {.strided = true, .layout = &x_layout});
  visit.Output("y", {ReducedShape(shape, axes, false).Count()}, out_dtype, {.flat = true});
}

void ReduceSpec::CheckFields(const CallChecker& call) const {
  CheckReduction(*this, call);
  call.Require(IsFloat(dtype) || (reduce != ReduceOp::kMean && reduce != ReduceOp::kL2),
               "needs a float type, got ", DTypeName(dtype));
  const Shape result = ReducedShape(shape, axes, false);
  call.Require(!IsExtremum(reduce) || shape.Count() > 0 || result.Count() == 0, "x ", shape,
               " has no elements along the reduced axes");
  call.Require(out_dtype == (IsExtremum(reduce) ? dtype : ResultType(reduce, dtype)),
               "a result of type ", DTypeName(out_dtype), " is not that of ", DTypeName(dtype));
}

void ReduceBackwardSpec::CheckFields(const CallChecker& call) const {
  CheckReduction(*this, call);
  call.RequireFloat("x", dtype);
}

void ArgReduceSpec::CheckFields(const CallChecker& call) const {
  call.RequireShape(shape);
  call.RequireAxis(axis, shape);
  CheckNumber(dtype, call);
  call.Require(shape[axis] > 0, "axis ", axis, " of x ", shape, " has no elements");
}

void CountTopKSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("scores", dtype);
  call.RequireShape({rows, classes});
  call.Require(label_dtype == kInt32 || label_dtype == kInt64,
               "labels must be int32 or int64, got ", DTypeName(label_dtype));
  call.Require(k >= 1, "k must be at least 1, got ", k);
}

}  // namespace singa
