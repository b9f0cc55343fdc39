#pragma once

// The way from cuDNN's statistics of batch norm to ours, and back. It keeps 1 / sqrt(variance +
// epsilon), we keep the variance.

#include <cstdint>

#include "backend/cudnn/runtime.h"

namespace singa::cuda {

/// Turns inverse deviations into variances, in place, and updates the running statistics, of which
/// either may be null. Into those of a channel went `values` values.
void FinishStatistics(Stream stream, int64_t channels, int64_t values, double epsilon,
                      double momentum, const float* mean, float* inverse_to_var,
                      float* running_mean, float* running_var);

void InverseDeviations(Stream stream, int64_t channels, double epsilon, const float* var,
                       float* inverse);

}  // namespace singa::cuda
