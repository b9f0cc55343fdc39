#pragma once

#include <vector>

#include "singa/core/tensor.h"
#include "singa/operation/activation.h"

namespace singa {

/// Batch normalisation (Ioffe & Szegedy 2015) of x (N, C), (N, C, L) or (N, C, H, W), over all axes
/// except 1:
///   y = scale · (x − mean) / sqrt(var + eps) + bias
/// Training normalises with the batch's mean and biased variance, and updates in place
///   running = (1 − factor) · running + factor · batch
/// with the batch's unbiased variance. For a single value per channel that is the biased one, zero.
/// An empty batch changes nothing. `factor` is SINGA's momentum.
///
/// Statistics and running tensors are float32 (float64 if x is). scale and bias have this type or
/// x's. Empty scale and bias mean 1 and 0. All of these have shape (C), or (1, C, 1, 1) as in
/// SINGA's scripts. Batch statistics have the shape of the running ones, and the gradients of scale
/// and bias have the shape of scale. Other types and shapes raise TypeError and
/// std::invalid_argument, naming the argument.
class SINGA_API BatchNormHandle {
 public:
  /// `input` is used to check the shape and to set `channels`. The default epsilon is SINGA's.
  BatchNormHandle(double momentum, const Tensor& input, double epsilon = 1e-5);
  double factor;
  double epsilon;
  int64_t channels;
};

/// Returns {y, mean, var} with the batch's mean and biased variance, which BatchNormBackward takes.
/// Empty running tensors are not updated.
///
/// `add`, with x's shape and type, is added to the result; then the activation is applied, which is
/// ReLU or none where something was added. So relu(bn(x) + add), the end of a residual block, reads
/// and writes each tensor once.
SINGA_API std::vector<Tensor> BatchNormForwardTraining(
    const BatchNormHandle& handle, const Tensor& x, const Tensor& scale, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, const Tensor& add = Tensor(),
    const Activation& activation = Activation());
/// Returns y, normalised with the running statistics.
SINGA_API Tensor BatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                           const Tensor& scale, const Tensor& bias,
                                           const Tensor& running_mean, const Tensor& running_var,
                                           const Tensor& add = Tensor(),
                                           const Activation& activation = Activation());
/// Folds a batch normalisation with fixed statistics into the convolution before it: returns {W',
/// b'} with conv(x, W') + b' = bn(conv(x, W) + b). W is (out, ...); b (out) may be empty. W' and b'
/// are plain, have W's type, and are computed in float64.
SINGA_API std::vector<Tensor> FoldBatchNorm(const Tensor& W, const Tensor& b, const Tensor& scale,
                                            const Tensor& bias, const Tensor& running_mean,
                                            const Tensor& running_var, double epsilon = 1e-5);
/// Returns {dx, dscale, dbias}, empty where not needed. `mean` and `var` come from
/// BatchNormForwardTraining. dscale and dbias have scale's type.
///
/// After a forward with an activation, pass that and, if nothing was added, forward's `bias`: the
/// activation's argument is computed again. After ReLU y may be passed instead, which tells where
/// the gradient passes; where something was added it must be. With `need_add` the fourth result is
/// the gradient of `add`; without an activation it is dy itself, not a copy.
SINGA_API std::vector<Tensor> BatchNormBackward(const BatchNormHandle& handle, const Tensor& dy,
                                                const Tensor& x, const Tensor& scale,
                                                const Tensor& mean, const Tensor& var,
                                                bool need_x = true, bool need_scale = true,
                                                const Activation& activation = Activation(),
                                                const Tensor& bias = Tensor(),
                                                const Tensor& y = Tensor(), bool need_add = false);
/// The gradients of BatchNormForwardInference, whose mean and variance are constants.
SINGA_API std::vector<Tensor> BatchNormBackwardInference(
    const BatchNormHandle& handle, const Tensor& dy, const Tensor& x, const Tensor& scale,
    const Tensor& running_mean, const Tensor& running_var, bool need_x = true,
    bool need_scale = true, const Activation& activation = Activation(),
    const Tensor& bias = Tensor(), const Tensor& y = Tensor(), bool need_add = false);

}  // namespace singa
