#pragma once

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"

namespace singa {

/// A mean of many numbers has more digits than 16 bits hold.
inline DType LossType(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

/// What the targets of a softmax cross-entropy are.
enum class TargetKind : int { kClasses, kProbabilities };
template <>
inline constexpr int kEnumSize<TargetKind> = 2;

/// t is (N) or (N, 1) of any type, or (N, C) of LossType. Scalars: v[0] = smoothing.
struct SoftmaxCrossEntropySpec {
  TargetKind target;
  DType dtype;
  const char* op() const { return "SoftmaxCrossEntropyForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitTargets(visit, "x", 0);
    visit.Output("loss", {}, LossType(dtype));
    visit.Output("p", visit.ShapeOfInput(0), dtype);
  }
  void CheckFields(const CallChecker&) const {}
  void CheckValues(const CallChecker& call) const;
  SINGA_FIELDS(target, dtype);

 protected:
  /// Scores, input number `i`, and t.
  void VisitTargets(ArgumentVisitor& visit, const char* scores, size_t i) const {
    const bool classes = target == TargetKind::kClasses;
    visit.Input(scores, visit.ShapeOfInput(i), dtype);
    visit.Input("t", visit.ShapeOfInput(i + 1),
                classes ? visit.TypeOfInput(i + 1) : LossType(dtype));
  }
};

/// Scalars: v[0] = smoothing.
struct SoftmaxCrossEntropyBackwardSpec : SoftmaxCrossEntropySpec {
  const char* op() const { return "SoftmaxCrossEntropyBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", {1}, visit.TypeOfInput(0), {.flat = true, .strided = true});
    VisitTargets(visit, "p", 1);
    visit.Output("dx", visit.ShapeOfInput(1), dtype);
  }
  void CheckFields(const CallChecker& call) const;
  void CheckValues(const CallChecker& call) const;
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

/// Scalars: v[0] = 1 / count, v[1] = margin.
struct PairLossSpec {
  PairLoss kind;
  DType dtype;
  const char* op() const { return PairLossName(kind); }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", visit.ShapeOfInput(0), dtype);
    visit.Input("t", visit.ShapeOfInput(0), LossType(dtype));
    visit.Output("loss", {}, LossType(dtype));
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(kind, dtype);
};

/// The gradient of x. t may be of any type. Scalars as for PairLossSpec.
struct PairLossBackwardSpec : PairLossSpec {
  const char* op() const { return PairLossBackwardName(kind); }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", {1}, visit.TypeOfInput(0), {.flat = true, .strided = true});
    visit.Input("x", visit.ShapeOfInput(1), dtype);
    visit.Input("t", visit.ShapeOfInput(1), visit.TypeOfInput(2));
    visit.Output("dx", visit.ShapeOfInput(1), dtype);
  }
  void CheckFields(const CallChecker& call) const;
};

}  // namespace singa
