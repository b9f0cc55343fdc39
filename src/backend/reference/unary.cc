// y = f(x): the functions are in model/formula/unary.h.

#include "model/formula/unary.h"

#include "backend/reference/map.h"
#include "backend/reference/register.h"
#include "backend/reference/vector_math.h"
#include "core/dtype_switch.h"
#include "model/formula/switch_operation.h"
#include "model/operation/elementwise_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {

namespace {

// Made of arithmetic alone, so that loops over it vectorise.
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
      return true;
    default:
      return formula::HasIntegerFunction(op);
  }
}

// Of floats, by vector_math.h.
constexpr bool Vectorises(UnaryOp op) {
  return op == UnaryOp::kExp || op == UnaryOp::kTanh || op == UnaryOp::kSigmoid ||
         op == UnaryOp::kSilu;
}

template <UnaryOp kOp, class C>
void Map(C a, C b, std::span<const Tensor> in, const Tensor& out) {
  const auto f = [a, b](C x) {
    // The same functions in a form that vectorises.
    if constexpr (std::is_same_v<C, float>) {
      if constexpr (kOp == UnaryOp::kExp) return Exp(x);
      if constexpr (kOp == UnaryOp::kTanh) return Tanh(x);
      if constexpr (kOp == UnaryOp::kSigmoid) return Sigmoid(x);
      if constexpr (kOp == UnaryOp::kSilu) return x / (1 + Exp(-x));
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

void RegisterUnary() { RegisterReference<UnarySpec, Run>(); }

}  // namespace singa::reference
