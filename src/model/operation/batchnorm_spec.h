#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// Type of the statistics, and in which the kernels take scale and bias.
inline DType BatchNormStatisticsType(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

/// Inputs: x, scale (or empty: 1), bias (or empty: 0), running mean, running variance.
/// Training: outputs y, mean, biased variance, and the running tensors again, which are updated in
/// place where they are not empty; Scalars.v[0] is the factor.
/// Inference: output y.
struct BatchNormForwardSpec {
  Shape shape;  // of x: (N, C, ...)
  DType dtype = kFloat32;
  bool training = true;
  bool has_scale = true;
  bool has_bias = true;
  double epsilon = 1e-5;
  LayoutPtr x_layout = nullptr;

  const char* op() const {
    return training ? "BatchNormForwardTraining" : "BatchNormForwardInference";
  }
  int64_t sum_length() const { return shape[0] * shape.Count(2, shape.rank()); }
  /// Of the terms of each output (magnitudes.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("training", self.training);
    visitor("has_scale", self.has_scale);
    visitor("has_bias", self.has_bias);
    visitor("epsilon", self.epsilon);
    visitor("x_layout", self.x_layout);
  }
};

/// Inputs: dy, x, scale (or empty: 1), mean, variance. Outputs: dx, dscale, dbias, empty where not
/// needed. `training`: mean and variance depend on x; otherwise they are constants.
struct BatchNormBackwardSpec {
  Shape shape;
  DType dtype = kFloat32;
  bool training = true;
  bool has_scale = true;
  bool need_x = true;
  bool need_scale = true;
  double epsilon = 1e-5;
  LayoutPtr x_layout = nullptr;

  const char* op() const { return training ? "BatchNormBackward" : "BatchNormBackwardInference"; }
  int64_t sum_length() const { return shape[0] * shape.Count(2, shape.rank()); }
  /// Of the terms of each output (magnitudes.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const;
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
    visitor("training", self.training);
    visitor("has_scale", self.has_scale);
    visitor("need_x", self.need_x);
    visitor("need_scale", self.need_scale);
    visitor("epsilon", self.epsilon);
    visitor("x_layout", self.x_layout);
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
