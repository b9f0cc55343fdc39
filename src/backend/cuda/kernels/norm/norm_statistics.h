#pragma once

// Conversions between cuDNN's batch norm statistics and ours. cuDNN keeps 1 / sqrt(variance +
// epsilon), we keep the variance.

#include <cstdint>

#include "backend/cuda/runtime/runtime.h"

namespace singa::cuda {

/// Converts inverse deviations to variances, in place, and updates the running statistics; either
/// of them may be null. Each channel has `values` values.
void FinishStatistics(Stream stream, int64_t channels, int64_t values, double epsilon,
                      double momentum, const float* mean, float* inverse_to_var,
                      float* running_mean, float* running_var);

void InverseDeviations(Stream stream, int64_t channels, double epsilon, const float* var,
                       float* inverse);

}  // namespace singa::cuda
