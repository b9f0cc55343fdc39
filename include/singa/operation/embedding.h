#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// Rows of W (vocabulary, width) for indices x of any shape (integers, or floats with whole
/// values): shape x + (width). An index outside [0, vocabulary) raises std::out_of_range.
SINGA_API Tensor EmbeddingForward(const Tensor& x, const Tensor& W);
/// dW, dense; equal indices add up in the order of x.
SINGA_API Tensor EmbeddingBackward(const Tensor& dy, const Tensor& x, const Shape& w_shape);

}  // namespace singa
