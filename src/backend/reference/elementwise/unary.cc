// y = f(x). The functions are in model/formula/unary.h.

#include "model/formula/unary.h"

#include "backend/reference/elementwise/map.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/vector_unary.h"
#include "model/operation/elementwise/spec.h"

namespace singa::reference {

namespace {

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

template <UnaryOp kOp, class C>
void Map(C a, C b, std::span<const Tensor> in, const Tensor& out) {
  const auto f = [a, b](C x) {
    if constexpr (std::is_same_v<C, float> && formula::HasVectorForm(kOp))
      return formula::VectorUnary<kOp>(x);
    else
      return formula::Unary(kOp, x, a, b);
  };
  if constexpr (IsArithmetic(kOp) || (std::is_same_v<C, float> && formula::HasVectorForm(kOp))) {
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
