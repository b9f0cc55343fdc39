#pragma once

#include <cstddef>
#include <cstdint>

#include "singa/core/export.h"

namespace singa {

/// Threads that kernels may use: one number for OpenMP, oneDNN and BLAS. Default: OMP_NUM_THREADS
/// if set, else the CPUs of this process within its cgroup's quota.
SINGA_API int NumThreads();
/// Raises std::invalid_argument unless 1 <= threads <= kMostThreads.
SINGA_API void SetNumThreads(int threads);
#ifndef SWIG
inline constexpr int kMostThreads = 1024;
#endif

}  // namespace singa
