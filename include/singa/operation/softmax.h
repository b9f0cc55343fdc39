#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// Softmax along `axis`. Subtracts the maximum first, so the exponentials do not overflow.
SINGA_API Tensor Softmax(const Tensor& x, int64_t axis = 1);
/// Returns dx = y · (dy − Σ dy·y), with the sum along `axis`.
SINGA_API Tensor SoftmaxBackward(const Tensor& dy, const Tensor& y, int64_t axis = 1);
/// Logarithm of the softmax along `axis`: x − max − log Σ e^(x − max).
SINGA_API Tensor LogSoftmax(const Tensor& x, int64_t axis = 1);
/// Returns dx = dy − e^y · Σ dy, with the sum along `axis`.
SINGA_API Tensor LogSoftmaxBackward(const Tensor& dy, const Tensor& y, int64_t axis = 1);

}  // namespace singa
