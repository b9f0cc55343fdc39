// c = f(a, b) and its two derivatives. The functions are in model/formula/binary.h.

#include "model/formula/binary.h"

#include <stdexcept>
#include <type_traits>

#include "backend/reference/elementwise/map.h"
#include "core/device/inline.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/vector_unary.h"
#include "model/operation/elementwise/spec.h"

namespace singa::reference {

namespace {

using formula::Divisor;
using formula::LoopKind;

/// Throws where integers have no quotient or power.
template <BinaryOp kOp, class C>
SINGA_INLINE void CheckDefined(C b) {
  constexpr Divisor kDivisor = formula::FactsOf(kOp).divisor;
  if constexpr (std::is_integral_v<C> && kDivisor == Divisor::kNotZero)
    Check<std::domain_error>(b != 0, BinaryName(kOp), "an integer is divided by zero");
  if constexpr (std::is_integral_v<C> && kDivisor == Divisor::kNotNegative)
    Check(b >= 0, BinaryName(kOp), "an integer cannot be raised to the power ", b);
}

/// Whether the loop calls VectorMath.
template <BinaryOp kOp, class C>
constexpr bool kVector = formula::FactsOf(kOp).loop == LoopKind::kVector&& std::is_same_v<C, float>;
template <BinaryOp kOp, class C>
using MathOf = std::conditional_t<kVector<kOp, C>, formula::VectorMath, formula::Library>;

template <BinaryOp kOp, class C, class F>
void MapAs(std::span<const Tensor> in, const Tensor& out, const F& f) {
  if constexpr (kVector<kOp, C>) {
    MapLongArithmetic<C>(in, out, f);
  } else if constexpr (formula::FactsOf(kOp).loop == LoopKind::kPlain) {
    MapArithmetic<C>(in, out, f);
  } else {
    MapMath<C>(in, out, f);
  }
}

void Run(const BinarySpec& spec, const Execution& execution) {
  SwitchCompute(spec.dtype, [&]<class C>() {
    formula::SwitchOperation(spec.kind, [&]<BinaryOp kOp>() {
      const auto f = [](C a, C b) SINGA_INLINE_LAMBDA {
        CheckDefined<kOp>(b);
        return formula::Binary<MathOf<kOp, C>>(kOp, a, b);
      };
      MapAs<kOp, C>(execution.inputs, execution.outputs[0], f);
    });
  });
}

template <BinaryOp kOp, bool kFirst, class C>
void MapGradient(std::span<const Tensor> in, const Tensor& out) {
  const auto f = [](C dy, C a, C b) SINGA_INLINE_LAMBDA {
    return formula::BinaryGradient<MathOf<kOp, C>>(kOp, kFirst, dy, a, b);
  };
  MapAs<kOp, C>(in, out, f);
}

void RunGradient(const BinaryBackwardSpec& spec, const Execution& execution) {
  if (!formula::HasBinaryGradient(spec.kind))
    throw std::logic_error("a binary derivative without a kernel");
  const auto run = [&]<class C>(C) {
    formula::SwitchOperation(spec.kind, [&]<BinaryOp kOp>() {
      if constexpr (formula::HasBinaryGradient(kOp)) {
        const auto map =
            spec.argument == 0 ? MapGradient<kOp, true, C> : MapGradient<kOp, false, C>;
        map(execution.inputs, execution.outputs[0]);
      }
    });
  };
  spec.dtype == kFloat64 ? run(double{}) : run(float{});
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<BinarySpec, Run>();
  RegisterReference<BinaryBackwardSpec, RunGradient>();
}

}  // namespace singa::reference
