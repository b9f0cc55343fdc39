#include <cmath>
#include <utility>

#include "core/tensor/copy.h"
#include "model/dispatch/dispatch.h"
#include "model/formula/unary.h"
#include "model/operation/check.h"
#include "model/operation/elementwise/layout.h"
#include "model/operation/elementwise/spec.h"
#include "singa/operation/elementwise.h"

namespace singa {

namespace {

void CheckOp(UnaryOp op) {
  Check(op >= UnaryOp{} && op < UnaryOp::kCount, "Unary", "no function has number ",
        static_cast<int>(op));
}

// Up to there the factorials of a and of a + 1 are finite.
void CheckOrder(UnaryOp op, const char* name, double a) {
  Check(op != UnaryOp::kPolyGamma || (a == std::trunc(a) && a >= 0 && a <= 169), name,
        "the order of a derivative is a whole number of 0 to 169, got ", a);
}

Scalars Constants(double a, double b) {
  Scalars scalars;
  scalars.v[0] = a;
  scalars.v[1] = b;
  return scalars;
}

// x is of a type that f takes, and so are its constants.
void CheckArgument(UnaryOp op, const Tensor& x, double a, double b) {
  CheckOp(op);
  const char* name = UnaryName(op);
  CheckGiven(name, "x", x);
  CheckOrder(op, name, a);
  if (IsFloat(x.data_type())) return;
  if (!TakesIntegers(op)) CheckFloat(name, "x", x);
  Check<TypeError>(a == std::trunc(a) && b == std::trunc(b), name, "constants ", a, ", ", b,
                   " must be whole numbers for x ", x);
  Check(op != UnaryOp::kPowScalar || a >= 0, name, "an integer cannot be raised to the power ", a);
  Check<TypeError>(
      x.data_type() != kBool || (op != UnaryOp::kNegative && op != UnaryOp::kScalarSub), name,
      "bools have no difference; use a logical function");
}

// Whether f holds for zeros of both types that floats are computed in.
template <class F>
bool InEachType(const F& f) {
  return f(0.0f) && f(0.0);
}

void Launch(UnaryOp op, const Tensor& x, const Tensor& out, double a, double b) {
  const UnarySpec spec{op, x.data_type()};
  Run(spec, x.device(), FindPlan(*x.device(), spec), {x}, {out}, Constants(a, b));
}

}  // namespace

const char* UnaryName(UnaryOp op) { return formula::FactsOf(op).name; }
const char* UnaryBackwardName(UnaryOp op) { return formula::FactsOf(op).backward_name; }

bool TakesIntegers(UnaryOp op) {
  return formula::FactsOf(op).integers != formula::Integers::kRefused;
}

bool KeepsZero(UnaryOp op, double a, double b) {
  return InEachType([=]<class C>(C zero) {
    return formula::Unary(op, zero, static_cast<C>(a), static_cast<C>(b)) == 0;
  });
}

bool BackwardKeepsZero(UnaryOp op, double a, double b) {
  return InEachType([=]<class C>(C zero) {
    const C c = static_cast<C>(a);
    const C d = op == UnaryOp::kScalarPow ? std::log(c) : static_cast<C>(b);
    return formula::UnaryGradient(op, zero, zero, c, d) == 0;
  });
}

Saved NeededByBackward(UnaryOp op) {
  CheckOp(op);
  return formula::FactsOf(op).saved;
}

Tensor Unary(UnaryOp op, const Tensor& x, double a, double b) {
  CheckArgument(op, x, a, b);
  Tensor in = x;
  const LayoutPtr layout = UnifyLayouts(x.layout() && KeepsZero(op, a, b), {&in});
  const Tensor y = ElementwiseOutput(layout, x.shape(), x.device(), x.data_type());
  Launch(op, in, y, a, b);
  return y;
}

void UnaryInto(UnaryOp op, const Tensor& x, const Tensor& out, double a, double b) {
  CheckArgument(op, x, a, b);
  const char* name = UnaryName(op);
  CheckLike(name, "out", out, "x", x);
  CheckDistinct(name, "out", out);
  Tensor in = x;
  // Writing element by element needs either out's own layout, or a plain block.
  Tensor target = out;
  if (out.layout() || x.layout()) {
    const bool together = out.layout() && PaddingStays(out.layout(), KeepsZero(op, a, b));
    if (!together) out.block()->MakePlain();
    in = InLayoutOrStrided(x, out.layout());
  }
  if (OverlapsPartly(in, target)) in = in.Clone();
  Launch(op, in, target, a, b);
}

Tensor UnaryBackward(UnaryOp op, const Tensor& dy, const Tensor& x, const Tensor& y, double a,
                     double b) {
  CheckOp(op);
  const char* name = UnaryBackwardName(op);
  CheckFloat(name, "dy", dy);
  CheckOrder(op, name, a);
  if (!x.empty()) CheckLike(name, "x", x, "dy", dy);
  if (!y.empty()) CheckLike(name, "y", y, "dy", dy);
  switch (op) {
    case UnaryOp::kAddScalar:
      return dy;
    case UnaryOp::kMulScalar:
      return Unary(UnaryOp::kMulScalar, dy, a);
    case UnaryOp::kNegative:
    case UnaryOp::kScalarSub:
      return Unary(UnaryOp::kNegative, dy);
    default:
      break;
  }
  Tensor saved;
  switch (NeededByBackward(op)) {
    case Saved::kNothing:  // steps: flat wherever they have a derivative
      return Full(dy.shape(), 0, dy.device(), dy.data_type());
    case Saved::kX:
      CheckGiven(name, "x", x);
      saved = x;
      break;
    case Saved::kY:
      Check(!x.empty() || !y.empty(), name, "y is an empty tensor (None)");
      saved = y.empty() ? Unary(op, x, a, b) : y;
      break;
    case Saved::kXOrY:
      // y has the sign of x, unless the slope of leaky ReLU is negative.
      Check(!x.empty() || (!y.empty() && (op == UnaryOp::kRelu || a >= 0)), name,
            "x is an empty tensor (None)");
      saved = x.empty() ? y : x;
      break;
  }
  Tensor gradient = dy;
  const bool opaque = dy.layout() || saved.layout();
  const LayoutPtr layout = UnifyLayouts(opaque && BackwardKeepsZero(op, a, b), {&gradient, &saved});
  const Tensor dx = ElementwiseOutput(layout, dy.shape(), dy.device(), dy.data_type());
  const UnaryBackwardSpec spec{op, dy.data_type()};
  Run(spec, dy.device(), FindPlan(*dy.device(), spec), {gradient, saved}, {dx}, Constants(a, b));
  return dx;
}

void UnarySpec::CheckCall(CallChecker& call) const {
  const auto [a, b] = std::pair(call.scalars().v[0], call.scalars().v[1]);
  const Shape shape = call.ShapeOfInput(0);
  call.Input("x", shape, dtype, {.strided = true});
  CheckArgument(kind, call.input(0), a, b);
  call.Output("y", shape, dtype, {.strided = true});
  call.Elementwise(KeepsZero(kind, a, b));
}

void UnaryBackwardSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  call.RequireFloat("dy", dtype);
  call.Require(NeededByBackward(kind) != Saved::kNothing, UnaryName(kind), " needs no kernel");
  call.Input("dy", shape, dtype, {.strided = true});
  call.Input("saved", shape, dtype, {.strided = true});
  call.Output("dx", shape, dtype, {.strided = true});
  call.Elementwise(BackwardKeepsZero(kind, call.scalars().v[0], call.scalars().v[1]));
}

}  // namespace singa
