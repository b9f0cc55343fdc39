// dx = dy · f'(x). The derivatives are in model/formula/unary.h.

#include <cmath>
#include <stdexcept>
#include <type_traits>

#include "backend/reference/elementwise/map.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/unary.h"
#include "model/formula/vector_unary.h"
#include "model/operation/elementwise/spec.h"

namespace singa::reference {

namespace {

using formula::LoopKind;

template <class C>
void RunFloat(const UnaryBackwardSpec& spec, const Execution& execution) {
  const C a = static_cast<C>(execution.scalars.v[0]);
  const C b =
      spec.kind == UnaryOp::kScalarPow ? std::log(a) : static_cast<C>(execution.scalars.v[1]);
  const bool square = spec.kind == UnaryOp::kPowScalar && a == 2;
  if (!formula::HasUnaryGradient(spec.kind))
    throw std::logic_error("a unary derivative without a kernel");
  formula::SwitchOperation(square ? UnaryOp::kSquare : spec.kind, [&]<UnaryOp kOp>() {
    if constexpr (formula::HasUnaryGradient(kOp)) {
      constexpr LoopKind kLoop = formula::FactsOf(kOp).slope_loop;
      constexpr bool kVector = formula::IsVector(kLoop) && std::is_same_v<C, float>;
      const auto f = [a, b](C dy, C xy) SINGA_INLINE_LAMBDA {
        if constexpr (kVector)
          return formula::VectorGradient<kOp>(dy, xy, a, b);
        else
          return formula::UnaryGradient(kOp, dy, xy, a, b);
      };
      if constexpr (kVector && !formula::IsForAll(kOp)) {
        MapNearArithmetic(execution.inputs, execution.outputs[0], f, formula::LargestOf(kOp),
                          [a, b](C dy, C x) { return formula::UnaryGradient(kOp, dy, x, a, b); });
      } else if constexpr (kVector) {
        MapLongArithmetic<C>(execution.inputs, execution.outputs[0], f);
      } else if constexpr (kLoop == LoopKind::kPlain) {
        MapArithmetic<C>(execution.inputs, execution.outputs[0], f);
      } else {
        MapMath<C>(execution.inputs, execution.outputs[0], f);
      }
    }
  });
}

void Run(const UnaryBackwardSpec& spec, const Execution& execution) {
  spec.dtype == kFloat64 ? RunFloat<double>(spec, execution) : RunFloat<float>(spec, execution);
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<UnaryBackwardSpec, Run>(); }

}  // namespace singa::reference
