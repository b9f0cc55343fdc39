#pragma once

#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// {y, mask}: each element is zeroed with probability `ratio`, the others scaled by 1 / (1 −
/// ratio). `mask` is uint8. The random numbers are the device's next x.size() positions: equal for
/// any number of threads. ratio outside [0, 1) raises std::invalid_argument.
SINGA_API std::vector<Tensor> DropoutForward(const Tensor& x, double ratio);
SINGA_API Tensor DropoutBackward(const Tensor& dy, const Tensor& mask, double ratio);

}  // namespace singa
