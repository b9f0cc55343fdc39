#pragma once

#include "singa/core/tensor.h"

namespace singa {

/// Returns the rows of W (vocabulary, width) at the indices x, with shape (..., width) for x of
/// shape (...). Indices are integers or floats with whole values. An index outside [0, vocabulary)
/// raises std::out_of_range.
SINGA_API Tensor EmbeddingForward(const Tensor& x, const Tensor& W);
/// Returns the dense dW. Gradients of equal indices are summed in the order of x.
SINGA_API Tensor EmbeddingBackward(const Tensor& dy, const Tensor& x, const Shape& w_shape);

}  // namespace singa
