#pragma once

#include <cstdint>

#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {

/// UpdateRunningStatistics for channel c, whose statistics cover `count` values.
template <class S>
__device__ __forceinline__ void UpdateRunning(int64_t c, double count, double momentum, S mean,
                                              S var, S* running_mean, S* running_var) {
  if (!(count > 0)) return;
  const double unbias = count > 1 ? count / (count - 1) : 1;
  if (running_mean)
    running_mean[c] = static_cast<S>((1 - momentum) * running_mean[c] + momentum * mean);
  if (running_var)
    running_var[c] = static_cast<S>((1 - momentum) * running_var[c] + momentum * unbias * var);
}

}  // namespace singa::cuda
