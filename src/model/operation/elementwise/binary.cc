#include <optional>
#include <utility>

#include "core/tensor/copy.h"
#include "model/dispatch/dispatch.h"
#include "model/formula/binary.h"
#include "model/operation/channel_scale/channel_scale.h"
#include "model/operation/check.h"
#include "model/operation/elementwise/layout.h"
#include "model/operation/elementwise/spec.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/reduce.h"

namespace singa {

namespace {

using formula::GradientOf;
using formula::Operands;

bool IsTruth(BinaryOp op) { return formula::FactsOf(op).is_truth; }

bool HasGradient(BinaryOp op) { return formula::FactsOf(op).da != GradientOf::kNothing; }

GradientOf SourceOf(BinaryOp op, int argument) {
  const formula::BinaryFacts& facts = formula::FactsOf(op);
  return argument == 0 ? facts.da : facts.db;
}

// bool < integer < float. A result may be stored in its own kind or a higher one.
int Kind(DType dtype) { return IsFloat(dtype) ? 2 : IsInteger(dtype) ? 1 : 0; }

// The type in which a result of type `dtype` is computed: integers in the wider type of the
// operands, so that a tensor without axes keeps its value.
DType ComputeTypeFor(DType dtype, const Tensor& a, const Tensor& b) {
  return IsFloat(dtype) ? dtype : Promote(a.data_type(), b.data_type());
}

// The checks of both forms. Returns the shape of the result.
Shape CheckArguments(BinaryOp op, const char* name, const Tensor& a, const Tensor& b) {
  CheckGiven(name, "a", a);
  CheckGiven(name, "b", b);
  CheckSameDevice(name, "b", b, "a", a);
  Check(op >= BinaryOp{} && op < BinaryOp::kCount, name, "no such function");
  return a.shape() == b.shape() ? a.shape() : BroadcastShapes(name, a.shape(), b.shape());
}

void CheckOp(BinaryOp op) {
  Check(op >= BinaryOp{} && op < BinaryOp::kCount, "Binary", "no function has number ",
        static_cast<int>(op));
}

bool Takes(BinaryOp op, DType dtype) {
  const Operands operands = formula::FactsOf(op).operands;
  return operands == Operands::kNumbers || (operands == Operands::kFloats) == IsFloat(dtype);
}

void CheckType(BinaryOp op, DType dtype) {
  Check<TypeError>(op != BinaryOp::kSub || dtype != kBool, BinaryName(op),
                   "bools have no difference; use a logical function");
  Check<TypeError>(Takes(op, dtype), BinaryName(op),
                   IsFloat(dtype) ? "needs integers or bools, got " : "needs a float type, got ",
                   DTypeName(dtype));
}

/// A result of this type can be written to `out`, which is what messages show of it.
template <class Out>
void CheckFits(BinaryOp op, const char* name, DType dtype, DType type, const Out& out) {
  Check<TypeError>(IsTruth(op) || Kind(type) >= Kind(dtype), name, "a result of type ",
                   DTypeName(dtype), " does not fit into out ", out);
}

void Launch(BinaryOp op, DType dtype, const Tensor& a, const Tensor& b, const Tensor& out) {
  const BinarySpec spec{op, dtype};
  Run(spec, out.device(), FindPlan(*out.device(), spec),
      {a.Broadcast(out.shape()), b.Broadcast(out.shape())}, {out});
}

}  // namespace

DType ResultType(const Tensor& a, const Tensor& b) {
  if ((a.rank() == 0) == (b.rank() == 0)) return Promote(a.data_type(), b.data_type());
  return a.rank() == 0 ? PromoteNumber(b.data_type(), a.data_type())
                       : PromoteNumber(a.data_type(), b.data_type());
}

bool IsResultType(DType dtype, DType a, DType b) {
  return dtype == Promote(a, b) || dtype == PromoteNumber(a, b) || dtype == PromoteNumber(b, a);
}

const char* BinaryName(BinaryOp op) { return formula::FactsOf(op).name; }
const char* BinaryBackwardName(BinaryOp op) { return formula::FactsOf(op).backward_name; }

bool KeepsZero(BinaryOp op) {
  return formula::FactsOf(op).operands == Operands::kBits || formula::Binary(op, 0.0, 0.0) == 0;
}

Tensor Binary(BinaryOp op, const Tensor& a, const Tensor& b) {
  CheckOp(op);
  const Shape shape = CheckArguments(op, BinaryName(op), a, b);
  if (op == BinaryOp::kMul)
    if (std::optional<Tensor> product = ScaleChannels(a, b)) return *std::move(product);
  const DType dtype = ResultType(a, b);
  CheckType(op, dtype);
  Tensor left = a, right = b;
  const bool opaque = a.layout() || b.layout();
  const LayoutPtr layout = UnifyLayouts(opaque && KeepsZero(op), {&left, &right});
  const Tensor c = ElementwiseOutput(layout, shape, a.device(), dtype);
  Launch(op, ComputeTypeFor(dtype, a, b), left, right, c);
  return c;
}

Tensor Compare(BinaryOp op, const Tensor& a, const Tensor& b) {
  CheckOp(op);
  const char* name = BinaryName(op);
  const Shape shape = CheckArguments(op, name, a, b);
  Check(IsTruth(op), name, "is no comparison or logical function");
  const Tensor c(shape, a.device(), kBool);
  Launch(op, ComputeTypeFor(ResultType(a, b), a, b), a.Plain(), b.Plain(), c);
  return c;
}

void BinaryInto(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out) {
  CheckOp(op);
  const char* name = BinaryName(op);
  const Shape shape = CheckArguments(op, name, a, b);
  CheckShapeIs(name, "out", out, shape);
  CheckDistinct(name, "out", out);
  CheckSameDevice(name, "out", out, "a", a);
  const DType dtype = ResultType(a, b);
  CheckType(op, dtype);
  CheckFits(op, name, dtype, out.data_type(), out);
  Tensor left = a, right = b, target = out;
  if (out.layout()) {
    // out keeps its layout where all operands can have it.
    if (!UnifyLayouts(KeepsZero(op), {&target, &left, &right})) {
      out.block()->MakePlain();
      target = out;
    }
  } else {
    left = a.Plain();
    right = b.Plain();
  }
  left = left.Broadcast(shape);
  right = right.Broadcast(shape);
  if (OverlapsPartly(left, target)) left = left.Clone();
  if (OverlapsPartly(right, target)) right = right.Clone();
  Launch(op, ComputeTypeFor(dtype, a, b), left, right, target);
}

namespace {

bool GradientKeepsZero(BinaryOp op, int argument) {
  return formula::BinaryGradient(op, argument == 0, 0.0, 0.0, 0.0) == 0;
}

// Gradient for one argument, in the broadcast shape.
Tensor FullGradient(BinaryOp op, int argument, const Tensor& dy, const Tensor& a, const Tensor& b,
                    const Tensor& c, const Shape& wanted) {
  const DType dtype = Promote(dy.data_type(), ResultType(a, b));
  const GradientOf source = SourceOf(op, argument);
  Tensor gradient = dy, left = a, right = b;
  if (source == GradientOf::kAC) right = c.empty() ? Binary(op, a, b) : c;
  // An operand that the derivative does not read must not be kept until backward.
  if (source == GradientOf::kA) right = left;
  if (source == GradientOf::kB) left = right;
  const bool opaque = dy.layout() || left.layout() || right.layout();
  const LayoutPtr layout =
      UnifyLayouts(opaque && GradientKeepsZero(op, argument), {&gradient, &left, &right});
  // A result that is summed afterwards is not rounded to 16 bits before.
  const bool sums = wanted != dy.shape();
  const DType result = sums && SizeOf(dtype) == 2 ? kFloat32 : dtype;
  const Tensor full = ElementwiseOutput(layout, dy.shape(), dy.device(), result);
  const BinaryBackwardSpec spec{op, argument, dtype};
  Run(spec, dy.device(), FindPlan(*dy.device(), spec),
      {gradient, left.Broadcast(dy.shape()), right.Broadcast(dy.shape())}, {full});
  return full;
}

}  // namespace

std::vector<Tensor> BinaryBackward(BinaryOp op, const Tensor& dy, const Tensor& a, const Tensor& b,
                                   const Tensor& c, bool need_a, bool need_b) {
  CheckOp(op);
  const char* name = BinaryBackwardName(op);
  const Shape shape = CheckArguments(op, name, a, b);
  Check<TypeError>(HasGradient(op), name, BinaryName(op), " has no gradient");
  CheckFloat(name, "dy", dy);
  CheckShapeIs(name, "dy", dy, shape);
  CheckSameDevice(name, "dy", dy, "a", a);
  if (!c.empty()) CheckShapeIs(name, "c", c, shape);
  if (need_a) CheckFloat(name, "a", a);
  if (need_b) CheckFloat(name, "b", b);
  if (op == BinaryOp::kMul)
    if (auto gradients = ScaleChannelsBackward(dy, a, b, need_a, need_b))
      return *std::move(gradients);

  const auto gradient = [&](int argument) {
    const Tensor& of = argument == 0 ? a : b;
    const GradientOf source = SourceOf(op, argument);
    const bool minus = source == GradientOf::kMinusDy;
    Tensor full = minus || source == GradientOf::kDy
                      ? dy
                      : FullGradient(op, argument, dy, a, b, c, of.shape());
    if (of.shape() != shape) full = SumTo(full, of.shape());
    if (minus) full = Unary(UnaryOp::kNegative, full);
    return full.AsType(of.data_type());
  };
  std::vector<Tensor> gradients(2);
  if (need_a) gradients[0] = gradient(0);
  if (need_b) gradients[1] = gradient(1);
  return gradients;
}

void BinarySpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  const DType a = call.TypeOfInput(0), b = call.TypeOfInput(1);
  call.Input("a", shape, a, {.strided = true});
  call.Input("b", shape, b, {.strided = true});
  call.Require(IsResultType(dtype, a, b), "is not computed in ", DTypeName(dtype), " for ",
               DTypeName(a), " and ", DTypeName(b));
  CheckType(kind, dtype);
  const DType out = call.TypeOfOutput(0);
  CheckFits(kind, call.op(), dtype, out, DTypeName(out));
  call.Output("c", shape, out, {.strided = true});
  call.Elementwise(KeepsZero(kind));
}

void BinaryBackwardSpec::CheckCall(CallChecker& call) const {
  call.Require((argument == 0 || argument == 1) && SourceOf(kind, argument) >= GradientOf::kA,
               BinaryName(kind), " has no kernel for the gradient of argument ", argument);
  call.RequireFloat("dy", dtype);
  const Shape shape = call.ShapeOfInput(0);
  call.Input("dy", shape, call.TypeOfInput(0), {.strided = true});
  call.Input("a", shape, call.TypeOfInput(1), {.strided = true});
  call.Input("b", shape, call.TypeOfInput(2), {.strided = true});
  const DType out = call.TypeOfOutput(0);
  call.Require(out == dtype || (out == kFloat32 && SizeOf(dtype) == 2), "a gradient of type ",
               DTypeName(out), " is not that of ", DTypeName(dtype));
  call.Output("gradient", shape, out, {.strided = true});
  call.Elementwise(GradientKeepsZero(kind, argument));
}

}  // namespace singa
