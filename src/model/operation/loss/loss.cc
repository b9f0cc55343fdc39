#include "singa/operation/loss.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/check.h"
#include "model/operation/loss/spec.h"
#include "singa/operation/elementwise.h"

namespace singa {

namespace {

#define SINGA_NAMES(name) \
  { #name "Forward", #name "Backward" }
constexpr const char* kNames[static_cast<int>(PairLoss::kCount)][2] = {
    SINGA_NAMES(CrossEntropy), SINGA_NAMES(BinaryCrossEntropy), SINGA_NAMES(MeanSquareError),
    SINGA_NAMES(RankingLoss)};
#undef SINGA_NAMES

void CheckSlope(const char* op, const Tensor& dy, const Tensor& x) {
  CheckFloat(op, "dy", dy);
  Check(dy.size() == 1, op, "dy must have one element, got ", dy);
  CheckSameDevice(op, "dy", dy, "x", x);
}

// Checks scores and targets. Returns what the targets are.
TargetKind CheckTargets(const char* op, const char* name, const Tensor& x, const Tensor& t,
                        double smoothing) {
  CheckFloat(op, name, x);
  CheckGiven(op, "t", t);
  CheckSameDevice(op, "t", t, name, x);
  Check(x.rank() == 2 && x.shape()[1] > 0, op, name, " must be (N, C) with C > 0, got ", x);
  Check(smoothing >= 0 && smoothing <= 1, op, "smoothing ", smoothing, " is not in [0, 1]");
  const int64_t rows = x.shape()[0];
  const bool column = t.shape() == Shape{rows, 1};
  if (t.shape() == x.shape() && (IsFloat(t.data_type()) || !column))
    return TargetKind::kProbabilities;
  Check(column || t.shape() == Shape{rows}, op, "t must be class numbers (", rows,
        ") or probabilities ", x.shape(), ", got ", t);
  return TargetKind::kClasses;
}

/// Targets as kernels take them.
Tensor Targets(TargetKind kind, const Tensor& t, DType dtype) {
  return kind == TargetKind::kClasses ? t : t.AsType(LossType(dtype));
}

}  // namespace

const char* PairLossName(PairLoss loss) { return kNames[static_cast<int>(loss)][0]; }
const char* PairLossBackwardName(PairLoss loss) { return kNames[static_cast<int>(loss)][1]; }

std::vector<Tensor> SoftmaxCrossEntropyForward(const Tensor& x, const Tensor& t, double smoothing) {
  const TargetKind target = CheckTargets("SoftmaxCrossEntropyForward", "x", x, t, smoothing);
  CallOptions options;
  options.scalars.v[0] = smoothing;
  return CallForAll(SoftmaxCrossEntropySpec{target, x.data_type()},
                    {x, Targets(target, t, x.data_type())}, options);
}

Tensor SoftmaxCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t,
                                   double smoothing) {
  const TargetKind target = CheckTargets("SoftmaxCrossEntropyBackward", "p", p, t, smoothing);
  const SoftmaxCrossEntropyBackwardSpec spec{target, p.data_type()};
  CheckSlope(spec.op(), dy, p);
  CallOptions options;
  options.scalars.v[0] = smoothing;
  return Call(spec, {dy, p, Targets(target, t, p.data_type())}, options);
}

namespace {

struct PairNames {
  const char* x;
  const char* t;
};

// The checks of both directions. Returns the scalars: the count that divides the sum, and the
// margin.
CallOptions CheckPair(const char* op, PairLoss kind, const PairNames& names, const Tensor& x,
                      const Tensor& t, double margin) {
  CheckFloat(op, names.x, x);
  CheckGiven(op, names.t, t);
  CheckSameDevice(op, names.t, t, names.x, x);
  Check(x.shape() == t.shape(), op, names.t, " must have the shape of ", names.x, " ", x.shape(),
        ", got ", t);
  const bool all = kind == PairLoss::kRanking || kind == PairLoss::kMeanSquareError;
  const int64_t count = all ? x.size() : x.rank() == 0 ? 1 : x.shape()[0];
  CallOptions options;
  options.scalars.v[0] = 1.0 / static_cast<double>(count);
  options.scalars.v[1] = margin;
  return options;
}

Tensor Forward(PairLoss kind, const PairNames& names, const Tensor& x, const Tensor& t,
               double margin = 0) {
  const PairLossSpec spec{kind, x.data_type()};
  const CallOptions options = CheckPair(spec.op(), kind, names, x, t, margin);
  return Call(spec, {x, t.AsType(LossType(x.data_type()))}, options);
}

Tensor Backward(PairLoss kind, const PairNames& names, const Tensor& dy, const Tensor& x,
                const Tensor& t, double margin = 0) {
  const PairLossBackwardSpec spec{kind, x.data_type()};
  const CallOptions options = CheckPair(spec.op(), kind, names, x, t, margin);
  CheckSlope(spec.op(), dy, x);
  return Call(spec, {dy, x, t}, options);
}

constexpr PairNames kPrediction{"p", "t"};
constexpr PairNames kRegression{"x", "t"};
constexpr PairNames kRanked{"positive", "negative"};

}  // namespace

Tensor CrossEntropyForward(const Tensor& p, const Tensor& t) {
  return Forward(PairLoss::kCrossEntropy, kPrediction, p, t);
}
Tensor CrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t) {
  return Backward(PairLoss::kCrossEntropy, kPrediction, dy, p, t);
}

Tensor BinaryCrossEntropyForward(const Tensor& p, const Tensor& t) {
  return Forward(PairLoss::kBinaryCrossEntropy, kPrediction, p, t);
}
Tensor BinaryCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t) {
  return Backward(PairLoss::kBinaryCrossEntropy, kPrediction, dy, p, t);
}

Tensor MeanSquareErrorForward(const Tensor& x, const Tensor& t) {
  return Forward(PairLoss::kMeanSquareError, kRegression, x, t);
}
Tensor MeanSquareErrorBackward(const Tensor& dy, const Tensor& x, const Tensor& t) {
  return Backward(PairLoss::kMeanSquareError, kRegression, dy, x, t);
}

Tensor RankingLossForward(const Tensor& positive, const Tensor& negative, double margin) {
  return Forward(PairLoss::kRanking, kRanked, positive, negative, margin);
}
std::vector<Tensor> RankingLossBackward(const Tensor& dy, const Tensor& positive,
                                        const Tensor& negative, double margin) {
  const Tensor dpositive = Backward(PairLoss::kRanking, kRanked, dy, positive, negative, margin);
  return {dpositive, Unary(UnaryOp::kNegative, dpositive).AsType(negative.data_type())};
}

namespace {

/// Input number `i` has scores, the next one targets of the kind that the Spec names.
void CheckTargetsOf(const SoftmaxCrossEntropySpec& spec, const char* scores, size_t i,
                    const CallChecker& call) {
  const Tensor& t = call.input(i + 1);
  call.Require(
      CheckTargets(call.op(), scores, call.input(i), t, call.scalars().v[0]) == spec.target,
      "t is of another kind than the one named: ", t);
}

}  // namespace

void SoftmaxCrossEntropySpec::CheckValues(const CallChecker& call) const {
  CheckTargetsOf(*this, "x", 0, call);
}

void SoftmaxCrossEntropyBackwardSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("dy", call.TypeOfInput(0));
}
void SoftmaxCrossEntropyBackwardSpec::CheckValues(const CallChecker& call) const {
  CheckTargetsOf(*this, "p", 1, call);
}

void PairLossSpec::CheckFields(const CallChecker& call) const { call.RequireFloat("x", dtype); }

void PairLossBackwardSpec::CheckFields(const CallChecker& call) const {
  call.RequireFloat("x", dtype);
  call.RequireFloat("dy", call.TypeOfInput(0));
}

}  // namespace singa
