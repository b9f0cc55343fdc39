#pragma once

#include <cstdint>
#include <vector>

#include "singa/operation/conv.h"

namespace singa {

// Operations on quantized tensors: int8 and uint8, where element q stands for (q − zero)·scale.
// They have no gradients.

/// Convolution of x (N, in, ...), int8 or uint8, with W (out, in / group, kernel), int8, whose zero
/// points are 0. The products are summed in int32:
///
///   sum = (x − x_zero) ⋆ W, with padding of x_zero
///
/// `type` is that of the result y:
///   int32           sum; wraps around where it overflows
///   float32         sum·scale + b, and with `relu` max(·, 0) of that
///   int8 and uint8  the same, rounded to the nearest integer, halves to the even one; plus y_zero,
///                   limited to the range of the type
///
/// scale and b (out) are float32. For quantized results they are the products of the scales of x
/// and W and the bias, each divided by the scale of y. b may be empty, for int32 both are.
/// x_zero and y_zero have one element, of int32; empty means 0. y_zero is for int8 and uint8 only.
/// Raises TypeError for other types, and std::invalid_argument for shapes that do not fit.
SINGA_API Tensor QuantizedConv(const Tensor& x, const Tensor& W, const Tensor& x_zero,
                               const Tensor& scale, const Tensor& b, const Tensor& y_zero,
                               const ConvHandle& handle, DType type, bool relu = false);

/// Product of x (..., k) with W (k, n), by the rules of QuantizedConv; scale and b are (n).
/// y_scale, which may be empty and is for int8 and uint8 only, has one element of float32, by which
/// what is rounded is divided. With `gelu`, which excludes `relu`, that is GELU of sum·scale + b.
SINGA_API Tensor QuantizedMatMul(const Tensor& x, const Tensor& W, const Tensor& x_zero,
                                 const Tensor& scale, const Tensor& b, const Tensor& y_zero,
                                 DType type, bool relu = false, bool gelu = false,
                                 const Tensor& y_scale = Tensor());

/// Whether QuantizedConv and QuantizedMatMul have kernels that multiply bytes on this device. Where
/// they have not, products of floats are faster.
SINGA_API bool ComputesInt8(const DevicePtr& device);

/// Quantizes the sum of one or two tensors of one shape, without writing them as floats:
///
///   sum = Σ (x − zero)·scale in float32, and with `relu` max(sum, 0)
///   y   = sum for type float32; for int8 and uint8 sum / y_scale, rounded as in QuantizedConv,
///         plus y_zero, limited to the range of the type
///
/// x are int8, uint8 or float32. scales, zeros, y_scale and y_zero have one element each:
/// scales and y_scale of float32, zeros and y_zero of int32. An empty scale means 1, an empty zero
/// 0. A NaN becomes the lower end of the range. Raises TypeError for other types, and
/// std::invalid_argument for shapes that do not fit.
SINGA_API Tensor QuantizedSum(const std::vector<Tensor>& x, const std::vector<Tensor>& scales,
                              const std::vector<Tensor>& zeros, const Tensor& y_scale,
                              const Tensor& y_zero, DType type, bool relu = false);

}  // namespace singa
