// dx = dy · f'(x). The derivatives are in model/formula/unary.h.

#include <cmath>
#include <numbers>
#include <type_traits>

#include "backend/reference/elementwise/map.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/switch_operation.h"
#include "model/formula/unary.h"
#include "model/formula/vector_math.h"
#include "model/spec/elementwise.h"

namespace singa::reference {

namespace {

// True if the derivative calls the C library, so that its loop does not vectorise.
constexpr bool CallsLibrary(UnaryOp op) {
  switch (op) {
    case UnaryOp::kSin:
    case UnaryOp::kCos:
    case UnaryOp::kSinh:
    case UnaryOp::kCosh:
    case UnaryOp::kAsinh:
    case UnaryOp::kSoftPlus:
    case UnaryOp::kElu:
    case UnaryOp::kSelu:
    case UnaryOp::kPowScalar:
      return true;
    default:
      return false;
  }
}

// In float, by vector_math.h.
constexpr bool Vectorises(UnaryOp op) {
  return op == UnaryOp::kErf || op == UnaryOp::kGelu || op == UnaryOp::kGeluTanh ||
         op == UnaryOp::kSilu || op == UnaryOp::kMish;
}

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
      const auto f = [a, b](C dy, C xy) SINGA_INLINE_LAMBDA {
        if constexpr (std::is_same_v<C, float>) {  // the same in a form that vectorises
          using namespace formula;  // NOLINT(google-build-using-namespace): reads as formulas
          if constexpr (kOp == UnaryOp::kErf)
            return dy * (2 * std::numbers::inv_sqrtpi_v<float> * Exp(-xy * xy));
          if constexpr (kOp == UnaryOp::kGelu) {
            const Tail tail = ErfcAndDensity(GeluArgument(xy));
            return dy * GeluSlope(xy, tail.erfc, tail.density);
          }
          if constexpr (kOp == UnaryOp::kGeluTanh)
            return dy *
                   TimesSigmoidSlope(xy, Exp(-GeluTanhArgument(xy)), GeluTanhArgumentSlope(xy));
          if constexpr (kOp == UnaryOp::kSilu) return dy * TimesSigmoidSlope(xy, Exp(-xy), 1.0f);
          if constexpr (kOp == UnaryOp::kMish) return dy * MishSlope(xy, Exp(-std::fabs(xy)));
        }
        return formula::UnaryGradient(kOp, dy, xy, a, b);
      };
      if constexpr (CallsLibrary(kOp) || (std::is_same_v<C, double> && Vectorises(kOp))) {
        MapMath<C>(execution.inputs, execution.outputs[0], f);
      } else {
        MapArithmetic<C>(execution.inputs, execution.outputs[0], f);
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
