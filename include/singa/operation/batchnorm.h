#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Batch normalisation over every axis but 1, of x (N, C), (N, C, L) or (N, C, H, W).
///   y = scale · (x − mean) / sqrt(var + eps) + bias
/// Training normalises with the batch's mean and biased variance and updates, in place,
///   running = (1 − factor) · running + factor · batch      (variance there: unbiased)
/// `factor` is SINGA's momentum. Statistics are float32 (float64 for float64 input).
class SINGA_API BatchNormHandle {
 public:
  /// SINGA's default eps is 1e-5. `input` only checks the shape.
  BatchNormHandle(double momentum, const Tensor& input, double epsilon = 1e-5);
  double factor;
  double epsilon;
  int64_t channels;
};

/// {y, mean, inverse standard deviation} of the batch; the last two are what backward takes.
/// Empty running tensors are not updated.
SINGA_API std::vector<Tensor> BatchNormForwardTraining(const BatchNormHandle& handle,
                                                       const Tensor& x, const Tensor& scale,
                                                       const Tensor& bias,
                                                       const Tensor& running_mean,
                                                       const Tensor& running_var);
/// y from frozen statistics.
SINGA_API Tensor BatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                           const Tensor& scale, const Tensor& bias,
                                           const Tensor& running_mean, const Tensor& running_var);
/// {dx, dscale, dbias} from what the training forward saved; empty where not needed.
SINGA_API std::vector<Tensor> BatchNormBackward(const BatchNormHandle& handle, const Tensor& dy,
                                                const Tensor& x, const Tensor& scale,
                                                const Tensor& mean, const Tensor& inv_std,
                                                bool need_x = true, bool need_scale = true);
/// The same through frozen statistics: the mean and variance are constants.
SINGA_API std::vector<Tensor> BatchNormBackwardInference(
    const BatchNormHandle& handle, const Tensor& dy, const Tensor& x, const Tensor& scale,
    const Tensor& running_mean, const Tensor& running_var, bool need_x = true,
    bool need_scale = true);

}  // namespace singa
