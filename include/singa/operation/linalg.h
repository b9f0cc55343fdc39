#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Matrix product with NumPy's rules for batches and vectors. `trans_a` and `trans_b` transpose the
/// last two axes.
SINGA_API Tensor MatMul(const Tensor& a, const Tensor& b, bool trans_a = false,
                        bool trans_b = false);
/// Returns {da, db}, summed over broadcast batch axes; empty where not needed.
SINGA_API std::vector<Tensor> MatMulBackward(const Tensor& dy, const Tensor& a, const Tensor& b,
                                             bool trans_a, bool trans_b, bool need_a, bool need_b);

/// alpha·op(A)·op(B) + beta·C for matrices (ONNX Gemm), where op transposes as `trans_a` and
/// `trans_b` say. C broadcasts to the result; it may be empty.
SINGA_API Tensor Gemm(const Tensor& a, const Tensor& b, const Tensor& c, double alpha = 1,
                      double beta = 1, bool trans_a = false, bool trans_b = false);
/// Returns {da, db, dc}, empty where not needed.
SINGA_API std::vector<Tensor> GemmBackward(const Tensor& dy, const Tensor& a, const Tensor& b,
                                           const Shape& c_shape, double alpha, double beta,
                                           bool trans_a, bool trans_b, bool need_a, bool need_b,
                                           bool need_c);

/// Fully connected layer: y (N, out) = x (N, in) · W + b. W is (in, out) as in SINGA, or (out, in)
/// with `weight_transposed`. b (out) may be empty. `relu` applies max(·, 0) to the result.
SINGA_API Tensor LinearForward(const Tensor& x, const Tensor& W, const Tensor& b,
                               bool weight_transposed = false, bool relu = false);
/// Returns {dx, dW, db}, empty where not needed.
SINGA_API std::vector<Tensor> LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& W,
                                             bool weight_transposed, bool need_x, bool need_w,
                                             bool need_b);

}  // namespace singa
