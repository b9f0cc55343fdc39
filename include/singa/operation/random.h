#pragma once

#include "singa/core/tensor.h"

namespace singa {

// Fill in place from the device's sequence (Philox 4x32-10, Salmon et al. 2011): the same numbers
// for any number of threads. Float types only, else TypeError.

SINGA_API void Uniform(double low, double high, const Tensor& out);   ///< [low, high)
SINGA_API void Gaussian(double mean, double std, const Tensor& out);  ///< Box-Muller
SINGA_API void Bernoulli(double p, const Tensor& out);  ///< 1 with probability p, else 0

}  // namespace singa
