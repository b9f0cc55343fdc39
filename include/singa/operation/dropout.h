#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// Zeroes each element with probability `ratio` and scales the others by 1 / (1 − ratio). Returns
/// {y, mask}; `mask` is uint8, 1 where an element is kept. Takes x.size() positions of the device's
/// random sequence, so results do not depend on the number of threads. A ratio outside [0, 1)
/// raises std::invalid_argument.
SINGA_API std::vector<Tensor> DropoutForward(const Tensor& x, double ratio);
/// Returns dx = dy · mask / (1 − ratio).
SINGA_API Tensor DropoutBackward(const Tensor& dy, const Tensor& mask, double ratio);

}  // namespace singa
