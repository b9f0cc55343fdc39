#pragma once

// Unary functions of floats and their derivatives in forms that vectorise (vector_math.h), for
// loops of kernels.

#include "core/device/inline.h"
#include "model/formula/unary.h"
#include "model/formula/vector_math.h"

namespace singa::formula {

/// What the formulas of LoopKind::kVector call.
struct VectorMath {
  SINGA_INLINE static float Exp(float x) { return formula::Exp(x); }
  SINGA_INLINE static float Log(float x) { return formula::Log(x); }
  SINGA_INLINE static float SoftPlus(float x) { return formula::SoftPlus(x); }
  SINGA_INLINE static float Tanh(float x) { return formula::Tanh(x); }
  SINGA_INLINE static float Erf(float x) { return formula::Erf(x); }
  SINGA_INLINE static float Erfc(float x) { return formula::Erfc(x); }
  SINGA_INLINE static float GeluSlope(float x) {
    const Tail tail = ErfcAndDensity(GeluArgument(x));
    return formula::GeluSlope(x, tail.erfc, tail.density);
  }
};

constexpr bool HasVectorForm(UnaryOp op) { return FactsOf(op).loop == LoopKind::kVector; }
constexpr bool HasVectorSlope(UnaryOp op) { return FactsOf(op).slope_loop == LoopKind::kVector; }

/// f(x), for a function that has a vector form.
template <UnaryOp kOp>
SINGA_INLINE float VectorUnary(float x) {
  static_assert(HasVectorForm(kOp));
  return Unary<VectorMath>(kOp, x, 0.0f, 0.0f);
}

/// dy · f'(x), for a function that has a derivative in a vector form.
template <UnaryOp kOp>
SINGA_INLINE float VectorGradient(float dy, float x) {
  static_assert(HasVectorSlope(kOp));
  return UnaryGradient<VectorMath>(kOp, dy, x, 0.0f, 0.0f);
}

}  // namespace singa::formula
