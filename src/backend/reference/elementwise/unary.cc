// y = f(x). The functions are in model/formula/unary.h.

#include "model/formula/unary.h"

#include "backend/reference/elementwise/map.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/vector_math.h"
#include "model/spec/elementwise.h"

namespace singa::reference {

namespace {

using formula::Erf;
using formula::Erfc;
using formula::Exp;
using formula::Sigmoid;
using formula::Tanh;

// True if the function is pure arithmetic, so that its loop vectorises.
constexpr bool IsArithmetic(UnaryOp op) {
  switch (op) {
    case UnaryOp::kPowScalar:
    case UnaryOp::kScalarPow:
      return false;
    case UnaryOp::kReciprocal:
    case UnaryOp::kSqrt:
    case UnaryOp::kCeil:
    case UnaryOp::kFloor:
    case UnaryOp::kRoundE:
    case UnaryOp::kSoftSign:
    case UnaryOp::kLeakyRelu:
    case UnaryOp::kHardSigmoid:
    case UnaryOp::kHardSwish:
      return true;
    default:
      return formula::HasIntegerFunction(op);
  }
}

// True if vector_math.h has the function for floats.
constexpr bool Vectorises(UnaryOp op) {
  return op == UnaryOp::kExp || op == UnaryOp::kTanh || op == UnaryOp::kSigmoid ||
         op == UnaryOp::kErf || op == UnaryOp::kGelu || op == UnaryOp::kGeluTanh ||
         op == UnaryOp::kSilu || op == UnaryOp::kMish;
}

template <UnaryOp kOp, class C>
void Map(C a, C b, std::span<const Tensor> in, const Tensor& out) {
  const auto f = [a, b](C x) {
    // the same functions in a form that vectorises
    if constexpr (std::is_same_v<C, float>) {
      if constexpr (kOp == UnaryOp::kExp) return Exp(x);
      if constexpr (kOp == UnaryOp::kTanh) return Tanh(x);
      if constexpr (kOp == UnaryOp::kSigmoid) return Sigmoid(x);
      if constexpr (kOp == UnaryOp::kErf) return Erf(x);
      if constexpr (kOp == UnaryOp::kGelu) return formula::Gelu(x, Erfc(formula::GeluArgument(x)));
      if constexpr (kOp == UnaryOp::kGeluTanh)
        return formula::TimesSigmoid(x, Exp(-formula::GeluTanhArgument(x)));
      if constexpr (kOp == UnaryOp::kSilu) return formula::TimesSigmoid(x, Exp(-x));
      if constexpr (kOp == UnaryOp::kMish) return formula::Mish(x, Exp(-std::fabs(x)));
    }
    return formula::Unary(kOp, x, a, b);
  };
  if constexpr (IsArithmetic(kOp) || (std::is_same_v<C, float> && Vectorises(kOp))) {
    MapArithmetic<C>(in, out, f);
  } else {
    MapMath<C>(in, out, f);
  }
}

void Run(const UnarySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    const C a = Convert<C>(execution.scalars.v[0]);
    const C b = Convert<C>(execution.scalars.v[1]);
    const bool square = spec.kind == UnaryOp::kPowScalar && a == 2;
    formula::SwitchOperation(square ? UnaryOp::kSquare : spec.kind, [&]<UnaryOp kOp>() {
      constexpr bool kDefined = std::is_floating_point_v<C> || formula::HasIntegerFunction(kOp);
      Map<kDefined ? kOp : UnaryOp::kFloor>(a, b, execution.inputs, execution.outputs[0]);
    });
  });
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<UnarySpec, Run>(); }

}  // namespace singa::reference
