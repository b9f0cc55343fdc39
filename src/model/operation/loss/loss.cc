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

// A mean of many numbers has more digits than 16 bits hold.
DType LossType(DType dtype) { return dtype == kFloat64 ? kFloat64 : kFloat32; }

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

Tensor ContiguousTargets(TargetKind kind, const Tensor& t, DType dtype) {
  return kind == TargetKind::kClasses ? t.Contiguous() : t.AsType(LossType(dtype)).Contiguous();
}

}  // namespace

const char* PairLossName(PairLoss loss) { return kNames[static_cast<int>(loss)][0]; }
const char* PairLossBackwardName(PairLoss loss) { return kNames[static_cast<int>(loss)][1]; }

std::vector<Tensor> SoftmaxCrossEntropyForward(const Tensor& x, const Tensor& t, double smoothing) {
  const TargetKind target = CheckTargets("SoftmaxCrossEntropyForward", "x", x, t, smoothing);
  const SoftmaxCrossEntropySpec spec{target, x.data_type()};
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor loss = NewOutput(*plan, 0, {}, device, LossType(x.data_type()));
  const Tensor p = NewOutput(*plan, 1, x.shape(), device, x.data_type());
  Scalars scalars;
  scalars.v[0] = smoothing;
  Run(spec, device, plan, {InPlanLayout(*plan, 0, x), ContiguousTargets(target, t, x.data_type())},
      {loss, p}, scalars);
  return {loss, p};
}

Tensor SoftmaxCrossEntropyBackward(const Tensor& dy, const Tensor& p, const Tensor& t,
                                   double smoothing) {
  const TargetKind target = CheckTargets("SoftmaxCrossEntropyBackward", "p", p, t, smoothing);
  const SoftmaxCrossEntropyBackwardSpec spec{target, p.data_type()};
  CheckSlope(spec.op(), dy, p);
  const DevicePtr device = p.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, p.shape(), device, p.data_type());
  Scalars scalars;
  scalars.v[0] = smoothing;
  Run(spec, device, plan,
      {dy.Plain(), InPlanLayout(*plan, 1, p), ContiguousTargets(target, t, p.data_type())}, {dx},
      scalars);
  return dx;
}

namespace {

struct PairNames {
  const char* x;
  const char* t;
};

// The checks of both directions. Returns the scalars: the count that divides the sum, and the
// margin.
Scalars CheckPair(const char* op, PairLoss kind, const PairNames& names, const Tensor& x,
                  const Tensor& t, double margin) {
  CheckFloat(op, names.x, x);
  CheckGiven(op, names.t, t);
  CheckSameDevice(op, names.t, t, names.x, x);
  Check(x.shape() == t.shape(), op, names.t, " must have the shape of ", names.x, " ", x.shape(),
        ", got ", t);
  const bool all = kind == PairLoss::kRanking || kind == PairLoss::kMeanSquareError;
  const int64_t count = all ? x.size() : x.rank() == 0 ? 1 : x.shape()[0];
  Scalars scalars;
  scalars.v[0] = 1.0 / static_cast<double>(count);
  scalars.v[1] = margin;
  return scalars;
}

Tensor Forward(PairLoss kind, const PairNames& names, const Tensor& x, const Tensor& t,
               double margin = 0) {
  const PairLossSpec spec{kind, x.data_type()};
  const Scalars scalars = CheckPair(spec.op(), kind, names, x, t, margin);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor loss = NewOutput(*plan, 0, {}, device, LossType(x.data_type()));
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, x), t.AsType(LossType(x.data_type())).Contiguous()}, {loss}, scalars);
  return loss;
}

Tensor Backward(PairLoss kind, const PairNames& names, const Tensor& dy, const Tensor& x,
                const Tensor& t, double margin = 0) {
  const PairLossBackwardSpec spec{kind, x.data_type()};
  const Scalars scalars = CheckPair(spec.op(), kind, names, x, t, margin);
  CheckSlope(spec.op(), dy, x);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor dx = NewOutput(*plan, 0, x.shape(), device, x.data_type());
  Run(spec, device, plan, {dy.Plain(), InPlanLayout(*plan, 1, x), InPlanLayout(*plan, 2, t)}, {dx},
      scalars);
  return dx;
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

void CheckTargetCall(const char* name, TargetKind target, const Shape& shape, DType dtype,
                     CallChecker& call) {
  const Tensor& x = call.Input(name, shape, dtype);
  const Tensor& t = call.AnyInput("t");
  call.Require(call.input_place(call.num_inputs() - 1).is_plain(), "t must be contiguous");
  call.Require(CheckTargets(call.op(), name, x, t, call.scalars().v[0]) == target &&
                   (target == TargetKind::kClasses || t.data_type() == LossType(dtype)),
               "t is of another kind than the one named, or of another type: ", t);
}

void CheckSlopeCall(CallChecker& call) {
  const Tensor& dy = call.AnyInput("dy");
  call.Require(IsFloat(dy.data_type()) && dy.size() == 1,
               "dy must have one element of a float type, got ", dy);
}

}  // namespace

void SoftmaxCrossEntropySpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  CheckTargetCall("x", target, shape, dtype, call);
  call.FlatOutput("loss", 1, LossType(dtype));
  call.Output("p", shape, dtype);
}

void SoftmaxCrossEntropyBackwardSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(1);
  CheckSlopeCall(call);
  CheckTargetCall("p", target, shape, dtype, call);
  call.Output("dx", shape, dtype);
}

void PairLossSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(0);
  call.RequireFloat("x", dtype);
  call.Input("x", shape, dtype);
  call.Input("t", shape, LossType(dtype));
  call.FlatOutput("loss", 1, LossType(dtype));
}

void PairLossBackwardSpec::CheckCall(CallChecker& call) const {
  const Shape shape = call.ShapeOfInput(1);
  call.RequireFloat("x", dtype);
  CheckSlopeCall(call);
  call.Input("x", shape, dtype);
  call.Input("t", shape, call.TypeOfInput(2));
  call.Output("dx", shape, dtype);
}

}  // namespace singa
