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

#define SINGA_NAMES(name) \
  { #name, #name "Backward" }
constexpr const char* kNames[static_cast<int>(UnaryOp::kCount)][2] = {
    SINGA_NAMES(Abs),        SINGA_NAMES(Sign),      SINGA_NAMES(Negative),
    SINGA_NAMES(Reciprocal), SINGA_NAMES(Square),    SINGA_NAMES(Sqrt),
    SINGA_NAMES(Exp),        SINGA_NAMES(Log),       SINGA_NAMES(Erf),
    SINGA_NAMES(Ceil),       SINGA_NAMES(Floor),     SINGA_NAMES(Round),
    SINGA_NAMES(RoundE),     SINGA_NAMES(Sin),       SINGA_NAMES(Cos),
    SINGA_NAMES(Tan),        SINGA_NAMES(Asin),      SINGA_NAMES(Acos),
    SINGA_NAMES(Atan),       SINGA_NAMES(Sinh),      SINGA_NAMES(Cosh),
    SINGA_NAMES(Tanh),       SINGA_NAMES(Asinh),     SINGA_NAMES(Acosh),
    SINGA_NAMES(Atanh),      SINGA_NAMES(Sigmoid),   SINGA_NAMES(Relu),
    SINGA_NAMES(SoftPlus),   SINGA_NAMES(SoftSign),  SINGA_NAMES(Elu),
    SINGA_NAMES(Selu),       SINGA_NAMES(LeakyRelu), SINGA_NAMES(HardSigmoid),
    SINGA_NAMES(Clip),       SINGA_NAMES(Gelu),      SINGA_NAMES(GeluTanh),
    SINGA_NAMES(Silu),       SINGA_NAMES(Mish),      SINGA_NAMES(HardSwish),
    SINGA_NAMES(AddScalar),  SINGA_NAMES(MulScalar), SINGA_NAMES(ScalarSub),
    SINGA_NAMES(ScalarDiv),  SINGA_NAMES(PowScalar), SINGA_NAMES(ScalarPow),
    SINGA_NAMES(LogicalNot), SINGA_NAMES(HardTanh)};
#undef SINGA_NAMES

void CheckOp(UnaryOp op) {
  Check(op >= UnaryOp{} && op < UnaryOp::kCount, "Unary", "no function has number ",
        static_cast<int>(op));
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
  if (IsFloat(x.data_type())) return;
  Check<TypeError>(TakesIntegers(op), name, "x must be of a float type, got ", x);
  Check<TypeError>(a == std::trunc(a) && b == std::trunc(b), name, "constants ", a, ", ", b,
                   " must be whole numbers for x ", x);
  Check(op != UnaryOp::kPowScalar || a >= 0, name, "an integer cannot be raised to the power ", a);
  Check<TypeError>(
      x.data_type() != kBool || (op != UnaryOp::kNegative && op != UnaryOp::kScalarSub), name,
      "bools have no difference; use a logical function");
}

void Launch(UnaryOp op, const Tensor& x, const Tensor& out, double a, double b) {
  const UnarySpec spec{op, x.data_type()};
  Run(spec, x.device(), FindPlan(*x.device(), spec), {x}, {out}, Constants(a, b));
}

}  // namespace

const char* UnaryName(UnaryOp op) { return kNames[static_cast<int>(op)][0]; }
const char* UnaryBackwardName(UnaryOp op) { return kNames[static_cast<int>(op)][1]; }

bool TakesIntegers(UnaryOp op) {
  switch (op) {
    case UnaryOp::kCeil:
    case UnaryOp::kFloor:
    case UnaryOp::kRound:
    case UnaryOp::kRoundE:
      return true;
    default:
      return formula::HasIntegerFunction(op);
  }
}

bool KeepsZero(UnaryOp op, double a, double b) {
  switch (op) {
    case UnaryOp::kReciprocal:
    case UnaryOp::kExp:
    case UnaryOp::kLog:
    case UnaryOp::kCos:
    case UnaryOp::kAcos:
    case UnaryOp::kCosh:
    case UnaryOp::kAcosh:
    case UnaryOp::kSigmoid:
    case UnaryOp::kSoftPlus:
    case UnaryOp::kScalarDiv:
    case UnaryOp::kScalarPow:
    case UnaryOp::kLogicalNot:
      return false;
    case UnaryOp::kAddScalar:
    case UnaryOp::kScalarSub:
      return a == 0;
    case UnaryOp::kMulScalar:  // not infinity times zero
      return std::isfinite(a);
    case UnaryOp::kPowScalar:
      return a > 0;
    case UnaryOp::kClip:
    case UnaryOp::kHardTanh:
      return a <= 0 && b >= 0;
    case UnaryOp::kHardSigmoid:
      return std::isfinite(a) && b <= 0;
    case UnaryOp::kElu:
    case UnaryOp::kSelu:
    case UnaryOp::kLeakyRelu:
      return std::isfinite(a) && std::isfinite(b);
    default:
      return true;
  }
}

bool BackwardKeepsZero(UnaryOp op) {
  switch (op) {
    case UnaryOp::kLog:  // 0 / 0
    case UnaryOp::kSqrt:
    case UnaryOp::kAcosh:
    case UnaryOp::kScalarDiv:
    case UnaryOp::kPowScalar:  // for exponents below one
    case UnaryOp::kScalarPow:  // for negative bases
      return false;
    default:
      return true;
  }
}

Saved NeededByBackward(UnaryOp op) {
  switch (op) {
    case UnaryOp::kSign:
    case UnaryOp::kNegative:
    case UnaryOp::kCeil:
    case UnaryOp::kFloor:
    case UnaryOp::kRound:
    case UnaryOp::kRoundE:
    case UnaryOp::kAddScalar:
    case UnaryOp::kMulScalar:
    case UnaryOp::kScalarSub:
    case UnaryOp::kLogicalNot:
      return Saved::kNothing;
    case UnaryOp::kReciprocal:
    case UnaryOp::kSqrt:
    case UnaryOp::kExp:
    case UnaryOp::kTan:
    case UnaryOp::kTanh:
    case UnaryOp::kSigmoid:
    case UnaryOp::kScalarPow:
      return Saved::kY;
    case UnaryOp::kRelu:
      return Saved::kXOrY;
    case UnaryOp::kLeakyRelu:
      return Saved::kXOrY;
    default:
      return Saved::kX;
  }
}

Tensor Unary(UnaryOp op, const Tensor& x, double a, double b) {
  CheckArgument(op, x, a, b);
  Tensor in = x;
  const LayoutPtr layout = UnifyLayouts(KeepsZero(op, a, b), {&in});
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
    const bool together = out.layout() && KeepsZero(op, a, b);
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
  const LayoutPtr layout = UnifyLayouts(BackwardKeepsZero(op), {&gradient, &saved});
  const Tensor dx = ElementwiseOutput(layout, dy.shape(), dy.device(), dy.data_type());
  const UnaryBackwardSpec spec{op, dy.data_type()};
  Run(spec, dy.device(), FindPlan(*dy.device(), spec), {gradient, saved}, {dx}, Constants(a, b));
  return dx;
}

void UnarySpec::CheckCall(CallChecker& call) const {
  const auto [a, b] = std::pair(call.scalars().v[0], call.scalars().v[1]);
  const Shape shape = call.ShapeOfInput(0);
  CheckArgument(kind, call.StridedInput("x", shape, dtype), a, b);
  call.StridedOutput("y", shape, dtype);
  call.Elementwise(KeepsZero(kind, a, b));
}

void UnaryBackwardSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  call.RequireFloat("dy", dtype);
  call.Require(NeededByBackward(kind) != Saved::kNothing, UnaryName(kind), " needs no kernel");
  call.StridedInput("dy", shape, dtype);
  call.StridedInput("saved", shape, dtype);
  call.StridedOutput("dx", shape, dtype);
  call.Elementwise(BackwardKeepsZero(kind));
}

}  // namespace singa
