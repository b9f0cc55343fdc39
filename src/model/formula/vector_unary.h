#pragma once

// Unary functions of floats and their derivatives in forms that vectorise (vector_math.h), for
// loops of kernels.

#include <limits>

#include "core/device/inline.h"
#include "model/formula/unary.h"
#include "model/formula/vector_math.h"
#include "model/formula/vector_trigonometry.h"

namespace singa::formula {

/// What the formulas of LoopKind::kVector call.
struct VectorMath {
  SINGA_INLINE static float Exp(float x) { return formula::Exp(x); }
  SINGA_INLINE static float Exp2(float x) { return formula::Exp2(x); }
  SINGA_INLINE static float Expm1(float x) { return formula::Expm1(x); }
  SINGA_INLINE static float Log(float x) { return formula::Log(x); }
  SINGA_INLINE static float Log2(float x) { return formula::Log2(x); }
  SINGA_INLINE static float Log10(float x) { return formula::Log10(x); }
  SINGA_INLINE static float Log1p(float x) { return formula::Log1p(x); }
  SINGA_INLINE static float Pow(float a, float b) { return formula::Pow(a, b); }
  SINGA_INLINE static float Sin(float x) { return formula::Sin(x); }
  SINGA_INLINE static float Cos(float x) { return formula::Cos(x); }
  SINGA_INLINE static float Tan(float x) { return formula::Tan(x); }
  SINGA_INLINE static float Asin(float x) { return formula::Asin(x); }
  SINGA_INLINE static float Acos(float x) { return formula::Acos(x); }
  SINGA_INLINE static float Atan(float x) { return formula::Atan(x); }
  SINGA_INLINE static float Sinh(float x) { return formula::Sinh(x); }
  SINGA_INLINE static float Cosh(float x) { return formula::Cosh(x); }
  SINGA_INLINE static float Asinh(float x) { return formula::Asinh(x); }
  SINGA_INLINE static float Acosh(float x) { return formula::Acosh(x); }
  SINGA_INLINE static float Atanh(float x) { return formula::Atanh(x); }
  SINGA_INLINE static float Select(bool condition, float yes, float no) {
    return detail::Select(condition, yes, no);
  }
  SINGA_INLINE static float SoftPlus(float x) { return formula::SoftPlus(x); }
  SINGA_INLINE static float Tanh(float x) { return formula::Tanh(x); }
  SINGA_INLINE static float Erf(float x) { return formula::Erf(x); }
  SINGA_INLINE static float Erfc(float x) { return formula::Erfc(x); }
  SINGA_INLINE static float GeluSlope(float x) {
    const Tail tail = ErfcAndDensity(GeluArgument(x));
    return formula::GeluSlope(x, tail.erfc, tail.density);
  }
};

constexpr bool IsVector(LoopKind loop) {
  return loop == LoopKind::kVector || loop == LoopKind::kVectorNumbers;
}
/// Whether a function of x alone, or its derivative, has a vector form.
constexpr bool HasVectorForm(UnaryOp op) { return FactsOf(op).loop == LoopKind::kVector; }
constexpr bool HasVectorSlope(UnaryOp op) { return FactsOf(op).slope_loop == LoopKind::kVector; }

/// The largest |x| of the vector forms. Beyond, where there is such, Library's are the function.
constexpr float LargestOf(UnaryOp op) {
  const bool is_angle = op == UnaryOp::kSin || op == UnaryOp::kCos || op == UnaryOp::kTan;
  return is_angle ? kFarAngle : std::numeric_limits<float>::infinity();
}
constexpr bool IsForAll(UnaryOp op) {
  return LargestOf(op) == std::numeric_limits<float>::infinity();
}

/// f(x; a, b), for a function that has a vector form.
template <UnaryOp kOp>
SINGA_INLINE float VectorUnary(float x, float a = 0, float b = 0) {
  static_assert(IsVector(FactsOf(kOp).loop));
  return Unary<VectorMath>(kOp, x, a, b);
}

/// dy · f'(x; a, b), for a function that has a derivative in a vector form.
template <UnaryOp kOp>
SINGA_INLINE float VectorGradient(float dy, float x, float a = 0, float b = 0) {
  static_assert(IsVector(FactsOf(kOp).slope_loop));
  return UnaryGradient<VectorMath>(kOp, dy, x, a, b);
}

}  // namespace singa::formula
