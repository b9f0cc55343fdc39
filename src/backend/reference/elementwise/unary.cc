// y = f(x). The functions are in model/formula/unary.h.

#include "model/formula/unary.h"

#include <span>
#include <stdexcept>
#include <type_traits>

#include "backend/reference/elementwise/map.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/vector_unary.h"
#include "model/operation/elementwise/spec.h"

namespace singa::reference {

namespace {

using formula::Integers;
using formula::LoopKind;

/// A loop over kOp, of floats or of integers that it takes.
template <UnaryOp kOp, class C>
void Map(C a, C b, std::span<const Tensor> in, const Tensor& out) {
  constexpr LoopKind kLoop = formula::FactsOf(kOp).loop;
  constexpr bool kVector = formula::IsVector(kLoop) && std::is_same_v<C, float>;
  const auto f = [a, b](C x) SINGA_INLINE_LAMBDA {
    if constexpr (kVector)
      return formula::VectorUnary<kOp>(x, a, b);
    else
      return formula::Unary(kOp, x, a, b);
  };
  if constexpr (kVector && !formula::IsForAll(kOp)) {
    MapNearArithmetic(in, out, f, formula::LargestOf(kOp),
                      [a, b](C x) { return formula::Unary(kOp, x, a, b); });
  } else if constexpr (kVector) {
    MapLongArithmetic<C>(in, out, f);
  } else if constexpr (kLoop == LoopKind::kPlain) {
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
      constexpr Integers kIntegers = formula::FactsOf(kOp).integers;
      if constexpr (std::is_floating_point_v<C> || kIntegers == Integers::kComputed)
        Map<kOp>(a, b, execution.inputs, execution.outputs[0]);
      else if constexpr (kIntegers == Integers::kUnchanged)
        Map<UnaryOp::kFloor>(a, b, execution.inputs, execution.outputs[0]);
      else
        throw std::logic_error("a function of floats is called with integers");
    });
  });
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<UnarySpec, Run>(); }

}  // namespace singa::reference
