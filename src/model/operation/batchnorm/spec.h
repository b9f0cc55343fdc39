#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/measure.h"
#include "model/dispatch/spec.h"
#include "model/operation/activation.h"
#include "model/operation/batchnorm/statistics_type.h"
#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// y before the residual and the activation. All our implementations compute it by this formula, in
/// the type S of the statistics, from the mean and variance that they return. A backward that
/// computes y again from x therefore finds the same signs to the bit, whichever implementation
/// computed y. Files that use it are compiled without contraction to fused multiply-adds
/// (src/CMakeLists.txt), which would round differently from CPU to CPU. cuDNN rounds in its own
/// way: where it was chosen for forward, a gradient may pass or not where y is within a rounding
/// error of zero.
template <class S>
constexpr S BatchNormValue(S x, S mean, S factor, S bias) {
  return (x - mean) * factor + bias;
}
template <class S>
constexpr S BatchNormFactor(S scale, S var, double epsilon) {
  return static_cast<S>(scale / std::sqrt(static_cast<double>(var) + epsilon));
}

/// BatchNormValue of one channel.
template <class S>
struct BatchNormAffine {
  BatchNormAffine(S mean, S var, S scale, S bias, double epsilon)
      : mean(mean), factor(BatchNormFactor(scale, var, epsilon)), bias(bias) {}
  S operator()(S x) const { return BatchNormValue(x, mean, factor, bias); }
  S mean, factor, bias;
};

/// ReLU's gradient from the sign of its argument or result. NaN passes, as in Relu.
template <class S>
constexpr S WhereRectified(S sign, S dy) {
  return sign <= 0 ? S(0) : dy;
}

/// Mean and biased variance of some values.
struct BatchNormMoments {
  double mean = 0, var = 0;
};

/// From the sums of `count` values and of their squares. The sum of squares may be much larger than
/// the variance, so its rounding error counts. A variance below zero becomes zero.
constexpr BatchNormMoments BatchNormMomentsOf(double count, double sum, double squares) {
  if (!(count > 0)) return {};
  const double mean = sum / count;
  const double var = squares / count - mean * mean;
  return {mean, var < 0 ? 0 : var};  // a NaN stays one
}

/// The fields of both directions.
struct BatchNormFields {
  Shape shape;  // of x: (N, C, ...)
  DType dtype = kFloat32;
  bool training = true;
  bool has_scale = true;
  double epsilon = 1e-5;
  LayoutPtr x_layout = nullptr;

  Shape channels() const { return {shape[1]}; }
  DType statistics() const { return StatisticsType(dtype); }
  int64_t sum_length() const { return shape[0] * shape.Count(2, shape.rank()); }
  /// On GPUs, where cuDNN's kernels are an alternative to ours.
  static constexpr bool kMeasured = true;
  static constexpr DeviceKind kMeasuredOn = DeviceKind::kCuda;
  SINGA_FIELDS(shape, dtype, training, has_scale, epsilon, x_layout);
};

/// y = bn(x), + add, and then the activation. After an addition that is ReLU or none. Without a
/// scale it is 1, without a bias 0. Training: var is the biased one; Scalars.v[0] is the factor of
/// the running tensors.
struct BatchNormForwardSpec : BatchNormFields {
  bool has_bias = true;
  bool has_add = false;
  Activation activation = {};

  const char* op() const {
    return training ? "BatchNormForwardTraining" : "BatchNormForwardInference";
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitInputs(visit);
    VisitOutputs(visit, true);
  }
  void CheckFields(const CallChecker& call) const;
  void AdjustMeasured(MeasuredCall* call) const {
    call->outputs[0].image = !call->outputs[0].absent;
  }
  /// Bounds of the terms that each output sums (norm/tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  void Sample(spot::Sampler& sampler) const;
  SINGA_MORE_FIELDS(BatchNormFields, has_bias, has_add, activation);

 protected:
  void VisitInputs(ArgumentVisitor& visit) const {
    const Shape channels = this->channels();
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("scale", channels, statistics(), {.given = has_scale});
    visit.Input("bias", channels, statistics(), {.given = has_bias});
    for (const char* name : {"running_mean", "running_var"})
      visit.Input(name, channels, statistics(), {.optional = training, .updated = training});
    visit.Input("add", shape, dtype, {.given = has_add, .layout = &x_layout});
  }
  void VisitOutputs(ArgumentVisitor& visit, bool y) const {
    visit.Output("y", shape, dtype, {.given = y});
    if (!training) return;
    const Shape channels = this->channels();
    visit.Output("mean", channels, statistics());
    visit.Output("var", channels, statistics());
    visit.Output("running_mean", channels, statistics(), {.same_as = 3});
    visit.Output("running_var", channels, statistics(), {.same_as = 4});
  }
};

/// Training with sums that the convolution before it has computed (ConvStatisticsSpec).
struct BatchNormFromSumsSpec : BatchNormForwardSpec {
  const char* op() const { return "BatchNormForwardFromSums"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitInputs(visit);
    visit.Input("sum", channels(), statistics());
    visit.Input("sum of squares", channels(), statistics());
    VisitOutputs(visit, true);
  }
  void CheckFields(const CallChecker& call) const;
};

/// Training where nothing reads y: the statistics alone.
struct BatchNormStatisticsSpec : BatchNormForwardSpec {
  const char* op() const { return "BatchNormStatistics"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitInputs(visit);
    VisitOutputs(visit, false);
  }
  void CheckFields(const CallChecker& call) const;
};

/// The gradients, and dadd, that of what was added. `training`: mean and variance depend on x;
/// otherwise they are constants.
///
/// With `has_dy2` the gradient is dy + dy2, rounded as if it were stored: the two gradients that
/// meet behind a residual block. Recorded steps use it (passes/gradient_sum.cc), with need_add.
///
/// With an activation f, the gradient that counts is dy · f'. BatchNormAffine computes f's argument
/// from x, which is read anyway, so forward keeps nothing for it. (y in a 16-bit float may have
/// rounded to another side of a kink of f than BatchNormAffine.) Where something was added, f is
/// ReLU, dy counts where y > 0, and y has to be given. Without an activation there is no dadd here,
/// because it is dy itself.
struct BatchNormBackwardSpec : BatchNormFields {
  bool has_bias = false;  ///< only for BatchNormAffine
  bool has_y = false;
  Activation activation = {};
  bool need_x = true;
  bool need_scale = true;
  bool need_add = false;
  bool has_dy2 = false;

  /// Position of dy2 among the inputs.
  static constexpr size_t kDy2 = 7;

  const char* op() const { return training ? "BatchNormBackward" : "BatchNormBackwardInference"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const Shape channels = this->channels();
    visit.Input("dy", shape, dtype, {.layout = &x_layout});
    visit.Input("x", shape, dtype, {.layout = &x_layout});
    visit.Input("scale", channels, statistics(), {.given = has_scale});
    visit.Input(training ? "mean" : "running_mean", channels, statistics());
    visit.Input(training ? "var" : "running_var", channels, statistics());
    visit.Input("bias", channels, statistics(), {.given = has_bias});
    visit.Input("y", shape, dtype, {.given = has_y, .layout = &x_layout});
    if (has_dy2) visit.Input("dy2", shape, dtype, {.layout = &x_layout});
    visit.Output("dx", shape, dtype, {.given = need_x});
    visit.Output("dscale", channels, statistics(), {.given = need_scale});
    visit.Output("dbias", channels, statistics(), {.given = need_scale});
    visit.Output("dadd", shape, dtype, {.given = need_add});
  }
  void CheckFields(const CallChecker& call) const;
  /// Bounds of the terms that each output sums (norm/tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  SINGA_MORE_FIELDS(BatchNormFields, has_bias, has_y, activation, need_x, need_scale, need_add,
                    has_dy2);
};

/// A convolution's filters, rows of `length` weights, and biases with the batch norm behind it
/// folded in.
struct FoldBatchNormSpec {
  int64_t filters = 0;
  int64_t length = 0;
  DType dtype = kFloat32;
  double epsilon = 1e-5;

  const char* op() const { return "FoldBatchNorm"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const DType statistics = StatisticsType(dtype);
    visit.Input("W", {filters * length}, dtype, {.flat = true});
    visit.Input("b", {filters}, dtype, {.optional = true});
    visit.Input("scale", {filters}, statistics, {.optional = true});
    visit.Input("bias", {filters}, statistics, {.optional = true});
    visit.Input("running_mean", {filters}, statistics);
    visit.Input("running_var", {filters}, statistics);
    visit.Output("W'", visit.ShapeOfInput(0), dtype);
    visit.Output("b'", {filters}, dtype);
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(filters, length, dtype, epsilon);
};

/// The update of running statistics in all implementations. Where the batch's statistics agree to
/// the bit, so do the running ones. `mean` and the biased `var` are those of `count` values per
/// channel. Null running pointers are left out.
template <class T>
void UpdateRunningStatistics(int64_t channels, int64_t count, double factor, const T* mean,
                             const T* var, T* running_mean, T* running_var) {
  if (count == 0) return;
  const double unbias = count > 1 ? static_cast<double>(count) / static_cast<double>(count - 1) : 1;
  const auto update = [&](T* running, const T* batch, double weight) {
    for (int64_t c = 0; c < channels; ++c)
      running[c] = static_cast<T>((1 - factor) * running[c] + weight * batch[c]);
  };
  if (running_mean) update(running_mean, mean, factor);
  if (running_var) update(running_var, var, factor * unbias);
}

}  // namespace singa
