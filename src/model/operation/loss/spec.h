#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"

namespace singa {

/// What the targets of a softmax cross-entropy are.
enum class TargetKind : int { kClasses, kProbabilities };
template <>
inline constexpr int kEnumSize<TargetKind> = 2;

/// Inputs x (N, C) and t: (N) of any type, or (N, C) of the type in which x is computed. Outputs
/// loss, p.
/// Scalars: v[0] = smoothing.
struct SoftmaxCrossEntropySpec {
  TargetKind target;
  DType dtype;
  const char* op() const { return "SoftmaxCrossEntropyForward"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("target", self.target);
    v("dtype", self.dtype);
  }
};

/// Inputs dy, p, t; output dx. Scalars: v[0] = smoothing.
struct SoftmaxCrossEntropyBackwardSpec : SoftmaxCrossEntropySpec {
  const char* op() const { return "SoftmaxCrossEntropyBackward"; }
  void CheckCall(CallChecker& call) const;
};

/// Losses that sum over pairs of elements and divide by a count.
enum class PairLoss : int {
  kCrossEntropy,
  kBinaryCrossEntropy,
  kMeanSquareError,
  kRanking,
  kCount
};

const char* PairLossName(PairLoss loss);
const char* PairLossBackwardName(PairLoss loss);

/// Inputs x, t of one shape; output the loss. Scalars: v[0] = 1 / count, v[1] = margin.
struct PairLossSpec {
  PairLoss kind;
  DType dtype;
  const char* op() const { return PairLossName(kind); }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("kind", self.kind);
    v("dtype", self.dtype);
  }
};

/// Inputs dy, x, t; output the gradient of x. Scalars as for PairLossSpec.
struct PairLossBackwardSpec : PairLossSpec {
  const char* op() const { return PairLossBackwardName(kind); }
  void CheckCall(CallChecker& call) const;
};

}  // namespace singa
