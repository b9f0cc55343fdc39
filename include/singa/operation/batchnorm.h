#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Batch normalisation over every axis but 1, of x (N, C), (N, C, L) or (N, C, H, W).
///   y = scale · (x − mean) / sqrt(var + eps) + bias
/// Training normalises with the batch's mean and biased variance and updates, in place,
///   running = (1 − factor) · running + factor · batch
/// where the batch's variance is the unbiased one (of a single value per channel: the biased one,
/// which is zero; an empty batch changes nothing). `factor` is SINGA's momentum.
///
/// Statistics are float32 (float64 for float64 input) and so are the running tensors. scale and
/// bias are of that type or of x's, and may be empty for 1 and 0. All of these have shape (C), or
/// (1, C, 1, 1) as in scripts for SINGA: then the batch's statistics come out in the shape of the
/// running ones, and the gradients of scale and bias in the shape of scale.
/// Raises std::invalid_argument and TypeError, naming the argument, for anything else.
class SINGA_API BatchNormHandle {
 public:
  /// SINGA's default eps is 1e-5. `input` only checks the shape.
  BatchNormHandle(double momentum, const Tensor& input, double epsilon = 1e-5);
  double factor;
  double epsilon;
  int64_t channels;
};

/// {y, mean, var}: the batch's mean and biased variance, which backward takes. Empty running
/// tensors are not updated.
///
/// `add`, of x's shape and type, is added to the result, and `relu` then cuts off what is negative:
/// relu(bn(x) + add), the end of a residual block, reads and writes its tensors once.
SINGA_API std::vector<Tensor> BatchNormForwardTraining(
    const BatchNormHandle& handle, const Tensor& x, const Tensor& scale, const Tensor& bias,
    const Tensor& running_mean, const Tensor& running_var, const Tensor& add = Tensor(),
    bool relu = false);
/// y from frozen statistics.
SINGA_API Tensor BatchNormForwardInference(const BatchNormHandle& handle, const Tensor& x,
                                           const Tensor& scale, const Tensor& bias,
                                           const Tensor& running_mean, const Tensor& running_var,
                                           const Tensor& add = Tensor(), bool relu = false);
/// {W', b'} of the convolution that does by itself what it and the batch norm behind it do together
/// with frozen statistics: bn(conv(x, W) + b) = conv(x, W') + b'. W is (out, ...), b (out) may be
/// empty. W' and b' have W's type, are plain, and are computed in float64.
SINGA_API std::vector<Tensor> FoldBatchNorm(const Tensor& W, const Tensor& b, const Tensor& scale,
                                            const Tensor& bias, const Tensor& running_mean,
                                            const Tensor& running_var, double epsilon = 1e-5);
/// {dx, dscale, dbias} from the mean and variance that the training forward returned; empty where
/// not needed. The gradients of scale and bias have scale's type.
///
/// After a forward with `relu`, give `relu` here and what tells where y was positive: y itself if
/// something was added; else `bias` as it was in forward suffices, and y may be left out. With
/// `need_add` there is a fourth result, the gradient of `add` (without relu dy itself, not a copy).
SINGA_API std::vector<Tensor> BatchNormBackward(const BatchNormHandle& handle, const Tensor& dy,
                                                const Tensor& x, const Tensor& scale,
                                                const Tensor& mean, const Tensor& var,
                                                bool need_x = true, bool need_scale = true,
                                                bool relu = false, const Tensor& bias = Tensor(),
                                                const Tensor& y = Tensor(), bool need_add = false);
/// The same through frozen statistics: the mean and variance are constants.
SINGA_API std::vector<Tensor> BatchNormBackwardInference(
    const BatchNormHandle& handle, const Tensor& dy, const Tensor& x, const Tensor& scale,
    const Tensor& running_mean, const Tensor& running_var, bool need_x = true,
    bool need_scale = true, bool relu = false, const Tensor& bias = Tensor(),
    const Tensor& y = Tensor(), bool need_add = false);

}  // namespace singa
