#pragma once

// Activations of `Vectors`. A file that includes this one has included the header of those before
// (vectors_avx2.h).

#include "model/formula/activation.h"
#include "singa/operation/activation.h"

#define SINGA_TARGET_INLINE SINGA_TARGET inline __attribute__((always_inline))

namespace singa::cpu {
namespace {

/// Activations of a few instructions.
template <ActivationKind kKind>
SINGA_TARGET_INLINE Vectors::Type Activated(Vectors::Type v, Vectors::Type low,
                                            Vectors::Type high) {
  if constexpr (kKind == ActivationKind::kRelu) {
    return Vectors::Rectify(v);
  } else if constexpr (kKind == ActivationKind::kClip) {
    return Vectors::Clip(v, low, high);
  } else if constexpr (kKind == ActivationKind::kHardSwish) {
    const Vectors::Type gate =
        Vectors::Clip(Vectors::Add(v, Vectors::All(3)), Vectors::All(0), Vectors::All(6));
    return Vectors::Multiply(v, Vectors::Multiply(gate, Vectors::All(1.0f / 6)));
  } else {
    static_assert(kKind == ActivationKind::kNone);
    return v;
  }
}

/// Of whole vectors. Not inlined: it takes more registers than the sums around it leave.
template <class V = Vectors>
SINGA_TARGET __attribute__((noinline)) void ApplySilu(float* values, int64_t count) {
  if constexpr (requires(typename V::Type v) { V::Silu(v); }) {
    for (int64_t i = 0; i < count; i += V::kLanes)
      V::Store(values + i, V::Silu(V::Load(values + i)));
  } else {
    const formula::FastActivation<ActivationKind::kSilu> f(ActivationKind::kSilu);
    for (int64_t i = 0; i < count; ++i) values[i] = f(values[i]);
  }
}

template <ActivationKind kKind, int kCount>
SINGA_TARGET_INLINE void ActivateEach(const Activation& activation,
                                      Vectors::Type (&results)[kCount]) {
  const Vectors::Type low = Vectors::All(static_cast<float>(activation.low)),
                      high = Vectors::All(static_cast<float>(activation.high));
#pragma GCC unroll 32
  for (int t = 0; t < kCount; ++t) results[t] = Activated<kKind>(results[t], low, high);
}

/// Of several vectors, any activation.
template <int kCount>
SINGA_TARGET_INLINE void Activate(const Activation& activation, Vectors::Type (&results)[kCount]) {
  constexpr int kLanes = Vectors::kLanes;
  switch (activation.kind) {
    case ActivationKind::kNone:
      return;
    case ActivationKind::kRelu:
      return ActivateEach<ActivationKind::kRelu>(activation, results);
    case ActivationKind::kClip:
      return ActivateEach<ActivationKind::kClip>(activation, results);
    case ActivationKind::kHardSwish:
      return ActivateEach<ActivationKind::kHardSwish>(activation, results);
    default: {
      float values[kCount * kLanes];
#pragma GCC unroll 32
      for (int t = 0; t < kCount; ++t) Vectors::Store(values + t * kLanes, results[t]);
      ApplySilu(values, kCount * kLanes);
#pragma GCC unroll 32
      for (int t = 0; t < kCount; ++t) results[t] = Vectors::Load(values + t * kLanes);
    }
  }
}

}  // namespace
}  // namespace singa::cpu
