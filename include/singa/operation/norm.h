#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

namespace singa {

// Normalisation by statistics of each sample's own values:
//
//   y = scale · (x − mean) / sqrt(var + epsilon) + bias
//
// with the biased variance, or without `centered` (RMS norm, Zhang and Sennrich 2019)
//
//   y = scale · x / sqrt(mean(x²) + epsilon) + bias
//
// The forward functions return {y, mean, inv_std}: the last two are flat tensors, which only
// backward reads; mean is empty without `centered`. They are float32, or float64 where x is.
// scale and bias have that type or x's type. They may be empty, for 1 and 0.
//
// The backward functions return {dx, dscale, dbias}, empty where not needed. The gradients of scale
// and bias have the type of scale, or of the statistics where scale is empty.
//
// All raise TypeError unless x has a float type, and std::invalid_argument for wrong shapes, for an
// epsilon that is negative or not finite, and for tensors on different devices.

/// Layer norm (Ba, Kiros and Hinton 2016): statistics over the axes from `axis` to the last. scale
/// and bias have the shape of these axes.
SINGA_API std::vector<Tensor> LayerNormForward(const Tensor& x, const Tensor& scale,
                                               const Tensor& bias, int64_t axis = -1,
                                               double epsilon = 1e-5, bool centered = true);
/// Returns {dx, dscale, dbias}; mean and inv_std are those that forward returned.
SINGA_API std::vector<Tensor> LayerNormBackward(const Tensor& dy, const Tensor& x,
                                                const Tensor& scale, const Tensor& mean,
                                                const Tensor& inv_std, int64_t axis = -1,
                                                bool need_x = true, bool need_scale = true,
                                                bool need_bias = true);

/// Layer norm over the channels of x (N, C, ...), at each position by itself. scale and bias have
/// shape (C). Channels-last images are not copied.
SINGA_API std::vector<Tensor> ChannelNormForward(const Tensor& x, const Tensor& scale,
                                                 const Tensor& bias, double epsilon = 1e-5,
                                                 bool centered = true);
/// Returns {dx, dscale, dbias}; mean and inv_std are those that forward returned.
SINGA_API std::vector<Tensor> ChannelNormBackward(const Tensor& dy, const Tensor& x,
                                                  const Tensor& scale, const Tensor& mean,
                                                  const Tensor& inv_std, bool need_x = true,
                                                  bool need_scale = true, bool need_bias = true);

/// Group norm (Wu and He 2018) of x (N, C, ...): statistics over the positions and the C / groups
/// channels of each group. scale and bias have shape (C). Instance norm (Ulyanov et al. 2016) has
/// as many groups as channels.
SINGA_API std::vector<Tensor> GroupNormForward(const Tensor& x, int64_t groups, const Tensor& scale,
                                               const Tensor& bias, double epsilon = 1e-5);
/// Returns {dx, dscale, dbias}; mean and inv_std are those that forward returned.
SINGA_API std::vector<Tensor> GroupNormBackward(const Tensor& dy, const Tensor& x, int64_t groups,
                                                const Tensor& scale, const Tensor& mean,
                                                const Tensor& inv_std, bool need_x = true,
                                                bool need_scale = true, bool need_bias = true);

}  // namespace singa
