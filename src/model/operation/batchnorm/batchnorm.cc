#include "singa/operation/batchnorm.h"

#include <array>
#include <cmath>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/check.h"

namespace singa {
namespace {

bool TakesShape(const Shape& x) { return x.rank() >= 2 && x.rank() <= 5; }
constexpr const char* kShapes =
    "x must have shape (N, C), (N, C, L), (N, C, H, W) or (N, C, D, H, W), got ";

void CheckInput(const char* op, const Tensor& x) {
  CheckFloat(op, "x", x);
  Check(TakesShape(x.shape()), op, kShapes, x);
}

void CheckInput(const char* op, const BatchNormHandle& handle, const Tensor& x) {
  CheckInput(op, x);
  Check(x.shape(1) == handle.channels, op, "x has ", x.shape(1),
        " channels, the handle was made for ", handle.channels, ": ", x);
}

/// The numbers of x's channels as (C). Scripts may keep them as (1, C, 1, 1).
Tensor OfChannels(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  const int64_t channels = x.shape(1);
  if (t.rank() == 4 && t.shape() == Shape{1, channels, 1, 1}) return t.Reshape({channels});
  CheckShapeIs(op, name, t, {channels});
  return t;
}

/// The numbers of channels in the shape in which the caller keeps them, that of `like`.
Tensor ShapedLike(const Tensor& t, const Tensor& like) {
  return t.empty() || like.rank() != 4 ? t : t.Reshape(like.shape());
}

/// scale or bias as the kernels take it: plain, in the statistics' type. Empty stays empty.
Tensor Affine(const char* op, const char* name, const Tensor& given, const Tensor& x) {
  if (given.empty()) return given;
  const DType statistics = StatisticsType(x.data_type());
  const Tensor t = OfChannels(op, name, given, x);
  Check<TypeError>(t.data_type() == statistics || t.data_type() == x.data_type(), op, name,
                   " must be ", DTypeName(statistics), " or of x's type, got ", t);
  CheckSameDevice(op, name, t, "x", x);
  return t.AsType(statistics);
}

void CheckMomentum(const char* op, double momentum) {
  Check(momentum >= 0 && momentum <= 1, op, "momentum must be within [0, 1], got ", momentum);
}

Tensor Statistics(const char* op, const char* name, const Tensor& given, const Tensor& x) {
  const Tensor t = OfChannels(op, name, given, x);
  CheckDType(op, name, t, StatisticsType(x.data_type()));
  CheckSameDevice(op, name, t, "x", x);
  return t;
}

Tensor Running(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  if (t.empty()) return t;
  Check(t.is_contiguous(), op, name, " is updated in place and must be contiguous, got ", t,
        " with strides ", t.strides());
  return Statistics(op, name, t, x);
}

constexpr const char* kAfterAdd = "the activation behind an addition must be ReLU or none";
bool IsReluOrNone(const Activation& activation) {
  return !activation || activation.kind == ActivationKind::kRelu;
}

/// The Spec of both forwards.
BatchNormForwardSpec ForwardSpec(const BatchNormHandle& handle, const Tensor& x,
                                 const Tensor& scale, const Tensor& bias, const Tensor& add,
                                 const Activation& activation, bool training) {
  const BatchNormForwardSpec spec{{.shape = x.shape(),
                                   .dtype = x.data_type(),
                                   .training = training,
                                   .has_scale = !scale.empty(),
                                   .epsilon = handle.epsilon,
                                   .x_layout = x.layout()},
                                  !bias.empty(),
                                  !add.empty(),
                                  activation};
  CheckActivation(spec.op(), activation);
  if (spec.has_add) {
    CheckLike(spec.op(), "add", add, "x", x);
    Check(IsReluOrNone(activation), spec.op(), kAfterAdd);
  }
  return spec;
}

/// The arguments of BatchNormBackward that are no tensors.
struct Asked {
  bool training, need_x, need_scale;
  Activation activation;
  bool need_add;
};

std::vector<Tensor> Backward(const BatchNormHandle& handle, const Tensor& dy, const Tensor& x,
                             const Tensor& scale, const Tensor& given_mean, const Tensor& given_var,
                             const Tensor& bias, const Tensor& y, const Asked& asked) {
  const bool by_y = asked.activation.kind == ActivationKind::kRelu && !y.empty();
  BatchNormBackwardSpec spec;
  spec.training = asked.training;
  spec.has_scale = !scale.empty();
  spec.epsilon = handle.epsilon;
  spec.has_bias = asked.activation && !by_y && !bias.empty();
  spec.has_y = by_y;
  spec.activation = asked.activation;
  spec.need_x = asked.need_x;
  spec.need_scale = asked.need_scale;
  spec.need_add = asked.activation && asked.need_add;
  const char* op = spec.op();
  CheckActivation(op, asked.activation);
  Check(!spec.need_add || IsReluOrNone(asked.activation), op, kAfterAdd);
  CheckInput(op, handle, x);
  CheckLike(op, "dy", dy, "x", x);
  const Tensor affine = Affine(op, "scale", scale, x);
  const Tensor mean = Statistics(op, asked.training ? "mean" : "running_mean", given_mean, x);
  const Tensor var = Statistics(op, asked.training ? "var" : "running_var", given_var, x);
  if (by_y) CheckLike(op, "y", y, "x", x);
  Check(!spec.need_add || by_y, op,
        "y is an empty tensor (None), but tells where the gradient of what was added passes ReLU");

  const bool dadd_is_dy = asked.need_add && !asked.activation;
  std::vector<Tensor> results(asked.need_add ? 4 : 3);
  if (dadd_is_dy) results[3] = dy;
  if (!spec.need_x && !spec.need_scale && !spec.need_add) return results;

  spec.shape = x.shape();
  spec.dtype = x.data_type();
  spec.x_layout = x.layout();
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const DType statistics = StatisticsType(spec.dtype);
  const Shape channels{handle.channels};
  Tensor dx, dscale, dbias, dadd;
  if (spec.need_x) dx = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  if (spec.need_scale) {
    dscale = NewOutput(*plan, 1, channels, device, statistics);
    dbias = NewOutput(*plan, 2, channels, device, statistics);
  }
  if (spec.need_add) dadd = NewOutput(*plan, 3, spec.shape, device, spec.dtype);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, dy), InPlanLayout(*plan, 1, x), InPlanLayout(*plan, 2, affine),
       InPlanLayout(*plan, 3, mean), InPlanLayout(*plan, 4, var),
       spec.has_bias ? InPlanLayout(*plan, 5, Affine(op, "bias", bias, x)) : Tensor(),
       by_y ? InPlanLayout(*plan, 6, y) : Tensor()},
      {dx, dscale, dbias, dadd});
  if (spec.need_scale && !scale.empty() && scale.data_type() != statistics) {
    dscale = dscale.AsType(scale.data_type());
    dbias = dbias.AsType(scale.data_type());
  }
  results[0] = dx;
  results[1] = ShapedLike(dscale, scale);
  results[2] = ShapedLike(dbias, scale);
  if (spec.need_add) results[3] = dadd;
  return results;
}

/// Functions that make an argument or result: an image, and a number for each channel.
auto MeasuredTensors(const BatchNormFields& spec) {
  const auto image = [&spec](bool there) {
    return MeasuredTensor{
        .shape = spec.shape, .dtype = spec.dtype, .layout = spec.x_layout, .absent = !there};
  };
  const auto of_channels = [&spec](bool there) {
    return MeasuredTensor{
        .shape = {spec.shape[1]}, .dtype = StatisticsType(spec.dtype), .absent = !there};
  };
  return std::pair(image, of_channels);
}

}  // namespace

MeasuredCall BatchNormForwardSpec::Measured() const {
  const auto [image, of_channels] = MeasuredTensors(*this);
  MeasuredCall call{{image(true), of_channels(has_scale), of_channels(has_bias), of_channels(true),
                     of_channels(true), image(has_add)},
                    {image(true)}};
  call.outputs[0].image = true;
  if (training) call.outputs.insert(call.outputs.end(), 4, of_channels(true));
  return call;
}

MeasuredCall BatchNormFromSumsSpec::Measured() const {
  MeasuredCall call = BatchNormForwardSpec::Measured();
  call.inputs.insert(call.inputs.end(), 2, MeasuredTensors(*this).second(true));
  return call;
}

MeasuredCall BatchNormStatisticsSpec::Measured() const {
  MeasuredCall call = BatchNormForwardSpec::Measured();
  call.outputs[0] = MeasuredTensors(*this).first(false);
  return call;
}

MeasuredCall BatchNormBackwardSpec::Measured() const {
  const auto [image, of_channels] = MeasuredTensors(*this);
  return {{image(true), image(true), of_channels(has_scale), of_channels(true), of_channels(true),
           of_channels(has_bias), image(has_y), image(has_dy2)},
          {image(need_x), of_channels(need_scale), of_channels(need_scale), image(need_add)}};
}

BatchNormHandle::BatchNormHandle(double momentum, const Tensor& input, double epsilon)
    : factor(momentum), epsilon(epsilon) {
  const char* op = "BatchNorm";
  CheckInput(op, input);
  CheckMomentum(op, momentum);
  CheckEpsilon(op, epsilon);
  channels = input.shape(1);
}

std::vector<Tensor> BatchNormForwardTraining(const BatchNormHandle& handle, const Tensor& x,
                                             const Tensor& scale, const Tensor& bias,
                                             const Tensor& running_mean, const Tensor& running_var,
                                             const Tensor& add, const Activation& activation) {
  const char* op = "BatchNormForwardTraining";
  CheckInput(op, handle, x);
  const Tensor a = Affine(op, "scale", scale, x);
  const Tensor b = Affine(op, "bias", bias, x);
  const Tensor running = Running(op, "running_mean", running_mean, x);
  const Tensor running_variance = Running(op, "running_var", running_var, x);

  const BatchNormForwardSpec spec = ForwardSpec(handle, x, scale, bias, add, activation, true);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const DType statistics = StatisticsType(spec.dtype);
  const Tensor y = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  const Tensor mean = NewOutput(*plan, 1, {handle.channels}, device, statistics);
  const Tensor var = NewOutput(*plan, 2, {handle.channels}, device, statistics);
  Scalars scalars;
  scalars.v[0] = handle.factor;
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, x), InPlanLayout(*plan, 1, a), InPlanLayout(*plan, 2, b), running,
       running_variance, InPlanLayout(*plan, 5, add)},
      {y, mean, var, running, running_variance}, scalars);
  return {y, ShapedLike(mean, running_mean), ShapedLike(var, running_var)};
}

Tensor BatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                 const Tensor& scale, const Tensor& bias,
                                 const Tensor& running_mean, const Tensor& running_var,
                                 const Tensor& add, const Activation& activation) {
  const char* op = "BatchNormForwardInference";
  CheckInput(op, handle, x);
  const Tensor a = Affine(op, "scale", scale, x);
  const Tensor b = Affine(op, "bias", bias, x);
  const Tensor mean = Statistics(op, "running_mean", running_mean, x);
  const Tensor var = Statistics(op, "running_var", running_var, x);

  const BatchNormForwardSpec spec = ForwardSpec(handle, x, scale, bias, add, activation, false);
  const DevicePtr device = x.device();
  const PlanPtr plan = FindPlan(*device, spec);
  const Tensor y = NewOutput(*plan, 0, spec.shape, device, spec.dtype);
  Run(spec, device, plan,
      {InPlanLayout(*plan, 0, x), InPlanLayout(*plan, 1, a), InPlanLayout(*plan, 2, b),
       InPlanLayout(*plan, 3, mean), InPlanLayout(*plan, 4, var), InPlanLayout(*plan, 5, add)},
      {y});
  return y;
}

std::vector<Tensor> BatchNormBackward(const BatchNormHandle& handle, const Tensor& dy,
                                      const Tensor& x, const Tensor& scale, const Tensor& mean,
                                      const Tensor& var, bool need_x, bool need_scale,
                                      const Activation& activation, const Tensor& bias,
                                      const Tensor& y, bool need_add) {
  return Backward(handle, dy, x, scale, mean, var, bias, y,
                  {true, need_x, need_scale, activation, need_add});
}

std::vector<Tensor> BatchNormBackwardInference(const BatchNormHandle& handle, const Tensor& dy,
                                               const Tensor& x, const Tensor& scale,
                                               const Tensor& running_mean,
                                               const Tensor& running_var, bool need_x,
                                               bool need_scale, const Activation& activation,
                                               const Tensor& bias, const Tensor& y, bool need_add) {
  return Backward(handle, dy, x, scale, running_mean, running_var, bias, y,
                  {false, need_x, need_scale, activation, need_add});
}

namespace {

void CheckFields(const BatchNormFields& spec, const CallChecker& call) {
  call.RequireFloat("x", spec.dtype);
  call.RequireShape(spec.shape);
  call.Require(TakesShape(spec.shape), kShapes, spec.shape);
  CheckEpsilon(call.op(), spec.epsilon);
  call.RequireLayout("x_layout", spec.x_layout, spec.shape, spec.dtype);
}

/// `sums`: whether there are inputs of sums. `y`: whether y is computed.
void CheckForward(const BatchNormForwardSpec& spec, bool sums, bool y, CallChecker& call) {
  CheckFields(spec, call);
  const DType statistics = StatisticsType(spec.dtype);
  const Shape channels{spec.shape[1]};
  call.Input("x", spec.shape, spec.dtype);
  call.InputIf(spec.has_scale, "scale", channels, statistics);
  call.InputIf(spec.has_bias, "bias", channels, statistics);
  std::array<bool, 2> running{};
  for (const int i : {0, 1}) {
    const char* name = i == 0 ? "running_mean" : "running_var";
    running[i] = !(spec.training ? call.OptionalInput(name, channels, statistics)
                                 : call.Input(name, channels, statistics))
                      .empty();
  }
  CheckActivation(call.op(), spec.activation);
  call.Require(!spec.has_add || IsReluOrNone(spec.activation), kAfterAdd);
  call.InputIf(spec.has_add, "add", spec.shape, spec.dtype);
  if (sums) {
    call.Require(spec.training, "sums are for training");
    call.Input("sum", channels, statistics);
    call.Input("sum of squares", channels, statistics);
  }
  call.OutputIf(y, "y", spec.shape, spec.dtype);
  if (!spec.training) return;
  CheckMomentum(call.op(), call.scalars().v[0]);
  call.Output("mean", channels, statistics);
  call.Output("var", channels, statistics);
  for (const int i : {0, 1}) {
    const char* name = i == 0 ? "running_mean" : "running_var";
    if (running[i]) {
      call.OutputIsInput(name, static_cast<size_t>(3 + i));
    } else {
      call.OutputIf(false, name, channels, statistics);
    }
  }
}

}  // namespace

void BatchNormForwardSpec::CheckCall(CallChecker& call) const {
  CheckForward(*this, false, true, call);
}
void BatchNormFromSumsSpec::CheckCall(CallChecker& call) const {
  CheckForward(*this, true, true, call);
}
void BatchNormStatisticsSpec::CheckCall(CallChecker& call) const {
  call.Require(training && !has_scale && !has_bias && !has_add && !activation,
               "statistics depend on x alone");
  CheckForward(*this, false, false, call);
}

void BatchNormBackwardSpec::CheckCall(CallChecker& call) const {
  CheckFields(*this, call);
  CheckActivation(call.op(), activation);
  call.Require((!has_y || activation.kind == ActivationKind::kRelu) &&
                   (!has_bias || (activation && !has_y)) && (!need_add || has_y) &&
                   (!has_dy2 || need_add) && (need_x || need_scale || need_add),
               "no gradient has these flags");
  const DType statistics = StatisticsType(dtype);
  const Shape channels{shape[1]};
  call.Input("dy", shape, dtype);
  call.Input("x", shape, dtype);
  call.InputIf(has_scale, "scale", channels, statistics);
  call.Input("mean", channels, statistics);
  call.Input("var", channels, statistics);
  call.InputIf(has_bias, "bias", channels, statistics);
  call.InputIf(has_y, "y", shape, dtype);
  if (has_dy2) call.Input("dy2", shape, dtype);
  call.OutputIf(need_x, "dx", shape, dtype);
  call.OutputIf(need_scale, "dscale", channels, statistics);
  call.OutputIf(need_scale, "dbias", channels, statistics);
  call.OutputIf(need_add, "dadd", shape, dtype);
}

}  // namespace singa
