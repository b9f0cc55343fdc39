#pragma once

// Activations that other operations apply to their results, and their derivatives, by the formulas
// of unary.h.

#include <algorithm>
#include <bit>
#include <cstdint>

#include "model/formula/unary.h"
#include "model/formula/vector_math.h"
#include "singa/operation/activation.h"

namespace singa::formula {

/// The function of an activation that is not kNone.
constexpr UnaryOp FunctionOf(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::kClip:
      return UnaryOp::kHardTanh;
    case ActivationKind::kHardSwish:
      return UnaryOp::kHardSwish;
    case ActivationKind::kSilu:
      return UnaryOp::kSilu;
    default:
      return UnaryOp::kRelu;
  }
}

namespace detail {

/// 1 / (1 + e^-v), from e^-|v|, so that nothing overflows and no branch is needed. Below -88 it is
/// 0, and 1 for NaN.
SINGA_INLINE float SigmoidOf(float v) {
  const int32_t magnitude = std::bit_cast<int32_t>(v) & 0x7fffffff;
  const float bounded =
      std::bit_cast<float>(std::min(magnitude, std::bit_cast<int32_t>(88.0f)));  // 2^-127 becomes 0
  const auto [power, tail] = Split(-bounded);
  const float e = (1 + tail) * PowerOfTwo(power);
  return (v < 0 ? e : 1.0f) / (1 + e);
}

}  // namespace detail

/// Activations of floats as loops use them: without calls and divisions by constants, so that they
/// vectorise and take little beside the memory's time.
template <ActivationKind kKind>
struct FastActivation {
  SINGA_INLINE explicit FastActivation(const Activation& activation)
      : low(static_cast<float>(activation.low)), high(static_cast<float>(activation.high)) {}
  SINGA_INLINE float operator()(float v) const {
    if constexpr (kKind == ActivationKind::kNone) return v;
    if constexpr (kKind == ActivationKind::kSilu) return v * detail::SigmoidOf(v);
    if constexpr (kKind == ActivationKind::kHardSwish)
      return v * (Unary(UnaryOp::kClip, v + 3.0f, 0.0f, 6.0f) * (1.0f / 6));
    return Unary(FunctionOf(kKind), v, low, high);
  }
  /// dy · f'(v)
  SINGA_INLINE float Gradient(float dy, float v) const {
    if constexpr (kKind == ActivationKind::kNone) return dy;
    if constexpr (kKind == ActivationKind::kSilu) {
      const float s = detail::SigmoidOf(v);
      return dy * (s + v * (s * (1 - s)));
    }
    if constexpr (kKind == ActivationKind::kHardSwish) {
      const float inside = dy * (v * (1.0f / 3) + 0.5f);
      return v <= -3.0f ? 0.0f : v >= 3.0f ? dy : inside;
    }
    return UnaryGradient(FunctionOf(kKind), dy, v, low, high);
  }

  float low, high;
};

}  // namespace singa::formula
