#include "singa/operation/batchnorm.h"

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

Tensor Running(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  if (t.empty()) return t;
  Check(t.is_contiguous(), op, name, " is updated in place and must be contiguous, got ", t,
        " with strides ", t.strides());
  return OfChannels(op, name, t, x);
}

void CheckBehind(const char* op, bool adds, const Activation& activation) {
  CheckActivation(op, activation);
  Check(!adds || !activation || activation.kind == ActivationKind::kRelu, op,
        "the activation behind an addition must be ReLU or none");
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
  CheckBehind(spec.op(), spec.has_add, activation);
  if (spec.has_add) CheckLike(spec.op(), "add", add, "x", x);
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
  CheckBehind(op, spec.need_add, asked.activation);
  CheckInput(op, handle, x);
  CheckLike(op, "dy", dy, "x", x);
  const Tensor affine = Affine(op, "scale", scale, x);
  const Tensor mean = OfChannels(op, asked.training ? "mean" : "running_mean", given_mean, x);
  const Tensor var = OfChannels(op, asked.training ? "var" : "running_var", given_var, x);
  if (by_y) CheckLike(op, "y", y, "x", x);
  Check(!spec.need_add || by_y, op,
        "y is an empty tensor (None), but tells where the gradient of what was added passes ReLU");

  spec.shape = x.shape();
  spec.dtype = x.data_type();
  spec.x_layout = x.layout();
  const Tensor affine_bias = spec.has_bias ? Affine(op, "bias", bias, x) : Tensor();
  std::vector<Tensor> results =
      CallForAll(spec, {dy, x, affine, mean, var, affine_bias, y},
                 {.zeros = !spec.need_x && !spec.need_scale && !spec.need_add});
  for (Tensor* t : {&results[1], &results[2]})
    if (!t->empty()) *t = ShapedLike(scale.empty() ? *t : t->AsType(scale.data_type()), scale);
  if (!asked.need_add) results.pop_back();
  if (asked.need_add && !asked.activation) results[3] = dy;
  return results;
}

}  // namespace

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

  CallOptions options;
  options.scalars.v[0] = handle.factor;
  std::vector<Tensor> results =
      CallForAll(ForwardSpec(handle, x, scale, bias, add, activation, true),
                 {x, a, b, running, running_variance, add}, options);
  results.resize(3);  // the others are the running statistics, which were updated
  if (running_mean.rank() == 4) results[1] = ShapedLike(results[1], running_mean);
  if (running_var.rank() == 4) results[2] = ShapedLike(results[2], running_var);
  return results;
}

Tensor BatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                 const Tensor& scale, const Tensor& bias,
                                 const Tensor& running_mean, const Tensor& running_var,
                                 const Tensor& add, const Activation& activation) {
  const char* op = "BatchNormForwardInference";
  CheckInput(op, handle, x);
  const Tensor a = Affine(op, "scale", scale, x);
  const Tensor b = Affine(op, "bias", bias, x);
  const Tensor mean = OfChannels(op, "running_mean", running_mean, x);
  const Tensor var = OfChannels(op, "running_var", running_var, x);
  return Call(ForwardSpec(handle, x, scale, bias, add, activation, false),
              {x, a, b, mean, var, add});
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

void CheckBatchNorm(const BatchNormFields& spec, bool adds, const Activation& activation,
                    const CallChecker& call) {
  call.RequireFloat("x", spec.dtype);
  call.RequireShape(spec.shape);
  call.Require(TakesShape(spec.shape), kShapes, spec.shape);
  CheckEpsilon(call.op(), spec.epsilon);
  CheckBehind(call.op(), adds, activation);
}

}  // namespace

void BatchNormForwardSpec::CheckFields(const CallChecker& call) const {
  CheckBatchNorm(*this, has_add, activation, call);
  if (training) CheckMomentum(call.op(), call.scalars().v[0]);
}
void BatchNormFromSumsSpec::CheckFields(const CallChecker& call) const {
  call.Require(training, "sums are for training");
  BatchNormForwardSpec::CheckFields(call);
}
void BatchNormStatisticsSpec::CheckFields(const CallChecker& call) const {
  call.Require(training && !has_scale && !has_bias && !has_add && !activation,
               "statistics depend on x alone");
  BatchNormForwardSpec::CheckFields(call);
}
void BatchNormBackwardSpec::CheckFields(const CallChecker& call) const {
  CheckBatchNorm(*this, need_add, activation, call);
  call.Require((!has_y || activation.kind == ActivationKind::kRelu) &&
                   (!has_bias || (activation && !has_y)) && (!need_add || has_y) &&
                   (!has_dy2 || need_add) && (need_x || need_scale || need_add),
               "no gradient has these flags");
}

}  // namespace singa
