#pragma once

// Unary functions of floats and their derivatives in forms that vectorise (vector_math.h), for
// loops of kernels. The other functions are in unary.h.

#include <cmath>
#include <numbers>

#include "core/device/inline.h"
#include "model/formula/unary.h"
#include "model/formula/vector_math.h"

namespace singa::formula {

constexpr bool HasVectorForm(UnaryOp op) {
  return op == UnaryOp::kExp || op == UnaryOp::kTanh || op == UnaryOp::kSigmoid ||
         op == UnaryOp::kErf || op == UnaryOp::kGelu || op == UnaryOp::kGeluTanh ||
         op == UnaryOp::kSilu || op == UnaryOp::kMish;
}

/// f(x), for a function that has a vector form.
template <UnaryOp kOp>
SINGA_INLINE float VectorUnary(float x) {
  if constexpr (kOp == UnaryOp::kExp) return Exp(x);
  if constexpr (kOp == UnaryOp::kTanh) return Tanh(x);
  if constexpr (kOp == UnaryOp::kSigmoid) return Sigmoid(x);
  if constexpr (kOp == UnaryOp::kErf) return Erf(x);
  if constexpr (kOp == UnaryOp::kGelu) return Gelu(x, Erfc(GeluArgument(x)));
  if constexpr (kOp == UnaryOp::kGeluTanh) return TimesSigmoid(x, Exp(-GeluTanhArgument(x)));
  if constexpr (kOp == UnaryOp::kSilu) return TimesSigmoid(x, Exp(-x));
  if constexpr (kOp == UnaryOp::kMish) return Mish(x, Exp(-std::fabs(x)));
}

constexpr bool HasVectorSlope(UnaryOp op) {
  return op == UnaryOp::kErf || op == UnaryOp::kGelu || op == UnaryOp::kGeluTanh ||
         op == UnaryOp::kSilu || op == UnaryOp::kMish;
}

/// f'(x), for a function that has one in a vector form.
template <UnaryOp kOp>
SINGA_INLINE float VectorSlope(float x) {
  if constexpr (kOp == UnaryOp::kErf) return 2 * std::numbers::inv_sqrtpi_v<float> * Exp(-x * x);
  if constexpr (kOp == UnaryOp::kGelu) {
    const Tail tail = ErfcAndDensity(GeluArgument(x));
    return GeluSlope(x, tail.erfc, tail.density);
  }
  if constexpr (kOp == UnaryOp::kGeluTanh)
    return TimesSigmoidSlope(x, Exp(-GeluTanhArgument(x)), GeluTanhArgumentSlope(x));
  if constexpr (kOp == UnaryOp::kSilu) return TimesSigmoidSlope(x, Exp(-x), 1.0f);
  if constexpr (kOp == UnaryOp::kMish) return MishSlope(x, Exp(-std::fabs(x)));
}

}  // namespace singa::formula
