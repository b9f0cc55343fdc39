#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "model/operation/measure.h"
#include "model/operation/spec.h"
#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// Type of the statistics, and in which the kernels take scale and bias.
inline DType BatchNormStatisticsType(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

/// y before the residual and ReLU. Every implementation of ours computes it so, in the type S of
/// the statistics and from the mean and variance that it returns: a backward that finds the signs
/// of y again from x then finds the same ones, to the bit, whoever computed y. The files that use
/// it are compiled without contraction to fused multiply-adds (src/CMakeLists.txt), which would
/// round differently from CPU to CPU. cuDNN rounds in its own way: where it was chosen for forward,
/// a gradient may pass or not where y is within a rounding error of zero.
template <class S>
constexpr S BatchNormValue(S x, S mean, S factor, S bias) {
  return (x - mean) * factor + bias;
}
template <class S>
constexpr S BatchNormFactor(S scale, S var, double epsilon) {
  return static_cast<S>(scale / std::sqrt(static_cast<double>(var) + epsilon));
}

/// The same for one channel.
template <class S>
struct BatchNormAffine {
  BatchNormAffine(S mean, S var, S scale, S bias, double epsilon)
      : mean(mean), factor(BatchNormFactor(scale, var, epsilon)), bias(bias) {}
  S operator()(S x) const { return BatchNormValue(x, mean, factor, bias); }
  S mean, factor, bias;
};

/// ReLU, and its gradient from the sign of its argument or result. NaN passes, as in Relu.
template <class S>
constexpr S Rectified(S v) {
  return v <= 0 ? S(0) : v;
}
template <class S>
constexpr S WhereRectified(S sign, S dy) {
  return sign <= 0 ? S(0) : dy;
}

/// Mean and biased variance of some values.
struct BatchNormMoments {
  double mean = 0, var = 0;
};

/// From the sums of `count` values and of their squares. How far the squares' sum was rounded tells
/// in the variance, beside which it may be large; below zero it does not fall.
constexpr BatchNormMoments BatchNormMomentsOf(double count, double sum, double squares) {
  if (!(count > 0)) return {};
  const double mean = sum / count;
  const double var = squares / count - mean * mean;
  return {mean, var < 0 ? 0 : var};  // a NaN stays one
}

/// y = bn(x), + add, and then ReLU, as the flags say.
/// Inputs: x, scale (or empty: 1), bias (or empty: 0), running mean, running variance, add.
/// Training: outputs y, mean, biased variance, and the running tensors again, which are updated in
/// place where they are not empty; Scalars.v[0] is the factor.
/// Inference: output y.
struct BatchNormForwardSpec {
  Shape shape;  // of x: (N, C, ...)
  DType dtype = kFloat32;
  bool training = true;
  bool has_scale = true;
  bool has_bias = true;
  bool has_add = false;
  bool relu = false;
  double epsilon = 1e-5;
  LayoutPtr x_layout = nullptr;

  const char* op() const {
    return training ? "BatchNormForwardTraining" : "BatchNormForwardInference";
  }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return shape[0] * shape.Count(2, shape.rank()); }
  /// On GPUs, where cuDNN's kernels are an alternative to ours.
  static constexpr DeviceKind kMeasuredOn = DeviceKind::kCuda;
  MeasuredCall Measured() const;
  /// Of the terms of each output (magnitudes.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("training", self.training);
    visitor("has_scale", self.has_scale);
    visitor("has_bias", self.has_bias);
    visitor("has_add", self.has_add);
    visitor("relu", self.relu);
    visitor("epsilon", self.epsilon);
    visitor("x_layout", self.x_layout);
  }
};

/// In training, where the sums are known: by the convolution that has written x
/// (ConvStatisticsSpec). Inputs 6 and 7: for each channel the sum of the values and that of their
/// squares, of the statistics' type.
struct BatchNormFromSumsSpec : BatchNormForwardSpec {
  const char* op() const { return "BatchNormForwardFromSums"; }
  void CheckCall(CallChecker& call) const;
  MeasuredCall Measured() const;
};

/// Inputs: dy, x, scale (or empty: 1), mean, variance, bias, y [, dy2]. Outputs: dx, dscale, dbias,
/// and dadd, the gradient of what was added; empty where not needed. `training`: mean and variance
/// depend on x; otherwise they are constants.
///
/// With `has_dy2` the gradient is dy + dy2, rounded as it would be stored: what went two ways
/// behind a residual block. That is for recorded steps (passes/gradient_sum.cc), and where need_add
/// is set.
///
/// With `relu`, dy counts where y > 0. Where y is given, its own values say so: there is no other
/// way once something was added. Where it is not, BatchNormAffine says so from x: x is read anyway,
/// so the pass over y, a third of what backward reads, is saved. (y in a 16-bit float may have
/// rounded to zero where BatchNormAffine is above it; the gradient then passes.)
/// Without `relu` there is no dadd here: it is dy itself.
struct BatchNormBackwardSpec {
  Shape shape;
  DType dtype = kFloat32;
  bool training = true;
  bool has_scale = true;
  bool has_bias = false;
  bool has_y = false;
  bool relu = false;
  bool need_x = true;
  bool need_scale = true;
  bool need_add = false;
  bool has_dy2 = false;
  double epsilon = 1e-5;
  LayoutPtr x_layout = nullptr;

  /// Position of dy2 among the inputs.
  static constexpr size_t kDy2 = 7;

  const char* op() const { return training ? "BatchNormBackward" : "BatchNormBackwardInference"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return shape[0] * shape.Count(2, shape.rank()); }
  /// On GPUs, where cuDNN's kernels are an alternative to ours.
  static constexpr DeviceKind kMeasuredOn = DeviceKind::kCuda;
  MeasuredCall Measured() const;
  /// Of the terms of each output (magnitudes.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("training", self.training);
    visitor("has_scale", self.has_scale);
    visitor("has_bias", self.has_bias);
    visitor("has_y", self.has_y);
    visitor("relu", self.relu);
    visitor("need_x", self.need_x);
    visitor("need_scale", self.need_scale);
    visitor("need_add", self.need_add);
    visitor("has_dy2", self.has_dy2);
    visitor("epsilon", self.epsilon);
    visitor("x_layout", self.x_layout);
  }
};

/// The filters and biases of a convolution with the batch norm behind it inside. Inputs: W, as
/// `filters` rows of `length` weights, b, scale, bias (each may be empty), running mean, running
/// variance. Outputs: W', b'.
struct FoldBatchNormSpec {
  int64_t filters = 0;
  int64_t length = 0;
  DType dtype = kFloat32;
  double epsilon = 1e-5;

  const char* op() const { return "FoldBatchNorm"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("filters", self.filters);
    visitor("length", self.length);
    visitor("dtype", self.dtype);
    visitor("epsilon", self.epsilon);
  }
};

/// The update of running statistics that every implementation does, so that they agree to the bit
/// where the batch's statistics do. `count` values per channel went into `mean` and the biased
/// `var`. Null running pointers are left out.
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
