#pragma once

#include "singa/core/tensor.h"

namespace singa {

// These functions fill `out` from the device's random sequence (Philox 4x32-10, Salmon et al.
// 2011). The numbers do not depend on the number of threads. `out` must have a float type; others
// raise TypeError.

SINGA_API void Uniform(double low, double high, const Tensor& out);   ///< in [low, high)
SINGA_API void Gaussian(double mean, double std, const Tensor& out);  ///< by Box-Muller
SINGA_API void Bernoulli(double p, const Tensor& out);  ///< 1 with probability p, else 0

}  // namespace singa
