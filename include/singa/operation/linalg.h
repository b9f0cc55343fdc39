#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Matrix product with NumPy's rules for batches and vectors, of optionally transposed last two
/// axes.
SINGA_API Tensor MatMul(const Tensor& a, const Tensor& b, bool trans_a = false,
                        bool trans_b = false);
/// {da, db}; empty where not needed; summed over broadcast batch axes.
SINGA_API std::vector<Tensor> MatMulBackward(const Tensor& dy, const Tensor& a, const Tensor& b,
                                             bool trans_a, bool trans_b, bool need_a, bool need_b);

/// alpha·op(A)·op(B) + beta·C for matrices (ONNX Gemm); C broadcasts to the result and may be
/// empty.
SINGA_API Tensor Gemm(const Tensor& a, const Tensor& b, const Tensor& c, double alpha = 1,
                      double beta = 1, bool trans_a = false, bool trans_b = false);
/// {da, db, dc}; empty where not needed.
SINGA_API std::vector<Tensor> GemmBackward(const Tensor& dy, const Tensor& a, const Tensor& b,
                                           const Shape& c_shape, double alpha, double beta,
                                           bool trans_a, bool trans_b, bool need_a, bool need_b,
                                           bool need_c);

/// Fully connected: y (N, out) = x (N, in) · W + b, with W (in, out) as SINGA keeps it, or (out,
/// in) with `weight_transposed`; b (out) may be empty. `relu` cuts off what is negative.
SINGA_API Tensor LinearForward(const Tensor& x, const Tensor& W, const Tensor& b,
                               bool weight_transposed = false, bool relu = false);
/// {dx, dW, db}; empty where not needed.
SINGA_API std::vector<Tensor> LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                             bool weight_transposed, bool need_x, bool need_w,
                                             bool need_b);

}  // namespace singa
