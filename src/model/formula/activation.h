#pragma once

// Activations that other operations apply to their results, and their derivatives, by the formulas
// of unary.h. An activation without a row in the table below does not compile.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "model/formula/unary.h"
#include "model/formula/vector_math.h"
#include "singa/operation/activation.h"

namespace singa::formula {

/// What is known of an activation.
struct ActivationFacts {
  ActivationKind kind;
  const char* name;
  UnaryOp function;  ///< kCount for kNone
  bool is_gate;      ///< x times a gate that rises from 0 to 1: the slope is at most 3/2
  bool is_slow;      ///< takes longer to compute than to write and read
};

namespace detail {

inline constexpr ActivationFacts kActivations[] = {
    {ActivationKind::kNone, "", UnaryOp::kCount, false, false},
    {ActivationKind::kRelu, "relu", UnaryOp::kRelu, false, false},
    {ActivationKind::kClip, "clip", UnaryOp::kHardTanh, false, false},
    {ActivationKind::kHardSwish, "hardswish", UnaryOp::kHardSwish, true, false},
    {ActivationKind::kSilu, "silu", UnaryOp::kSilu, true, true},
};

constexpr bool ActivationsFollowEnumeration() {
  for (size_t i = 0; i < std::size(kActivations); ++i)
    if (kActivations[i].kind != static_cast<ActivationKind>(i)) return false;
  return std::size(kActivations) == static_cast<size_t>(ActivationKind::kCount);
}
static_assert(ActivationsFollowEnumeration());

}  // namespace detail

constexpr const ActivationFacts& FactsOf(ActivationKind kind) {
  return detail::kActivations[static_cast<size_t>(kind)];
}

/// The function of an activation that is not kNone.
constexpr UnaryOp FunctionOf(ActivationKind kind) { return FactsOf(kind).function; }

/// The activation that is this function; kNone if none is.
constexpr ActivationKind ActivationOf(UnaryOp function) {
  for (const ActivationFacts& facts : detail::kActivations)
    if (facts.function == function) return facts.kind;
  return ActivationKind::kNone;
}

/// Whether it leaves zeros, with which layouts fill up blocks of channels, as they are.
constexpr bool KeepsZero(const Activation& activation) {
  return activation.low <= 0 && activation.high >= 0;
}

/// f(v) of any activation; v for kNone.
template <int kFirst = 1, class C>
[[gnu::always_inline]] constexpr C Activated(ActivationKind kind, C v, C low, C high) {
  if constexpr (kFirst == static_cast<int>(ActivationKind::kCount)) {
    return v;
  } else {
    constexpr auto kKind = static_cast<ActivationKind>(kFirst);
    constexpr UnaryOp kFunction = FunctionOf(kKind);
    if (kind == kKind) return Unary(kFunction, v, low, high);
    return Activated<kFirst + 1>(kind, v, low, high);
  }
}

/// dy · f'(v); dy for kNone.
template <int kFirst = 1, class C>
[[gnu::always_inline]] constexpr C ActivatedGradient(ActivationKind kind, C dy, C v, C low,
                                                     C high) {
  if constexpr (kFirst == static_cast<int>(ActivationKind::kCount)) {
    return dy;
  } else {
    constexpr auto kKind = static_cast<ActivationKind>(kFirst);
    constexpr UnaryOp kFunction = FunctionOf(kKind);
    if (kind == kKind) return UnaryGradient(kFunction, dy, v, low, high);
    return ActivatedGradient<kFirst + 1>(kind, dy, v, low, high);
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
    if constexpr (kKind == ActivationKind::kSilu) return v * detail::SigmoidOf(v);
    if constexpr (kKind == ActivationKind::kHardSwish)
      return v * (Clamped(v + 3.0f, 0.0f, 6.0f) * (1.0f / 6));
    return Activated(kKind, v, low, high);
  }
  /// dy · f'(v)
  SINGA_INLINE float Gradient(float dy, float v) const {
    if constexpr (kKind == ActivationKind::kSilu) {
      const float s = detail::SigmoidOf(v);
      return dy * (s + v * (s * (1 - s)));
    }
    if constexpr (kKind == ActivationKind::kHardSwish)
      return Piecewise(v, -3.0f, 3.0f, 0.0f, dy * (v * (1.0f / 3) + 0.5f), dy);
    return ActivatedGradient(kKind, dy, v, low, high);
  }

  float low, high;
};

}  // namespace singa::formula
