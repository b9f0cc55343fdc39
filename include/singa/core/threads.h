#pragma once

#include <cstddef>
#include <cstdint>

#include "singa/core/export.h"

namespace singa {

/// Number of threads that a kernel may use, with OpenMP, oneDNN or BLAS. Default: OMP_NUM_THREADS
/// if set, else the number of CPUs available to this process, limited by its cgroup's quota.
SINGA_API int NumThreads();
/// Raises std::invalid_argument unless 1 <= threads <= kMostThreads, and for more than one in a
/// process that was forked.
SINGA_API void SetNumThreads(int threads);
#ifndef SWIG
inline constexpr int kMostThreads = 1024;
#endif

}  // namespace singa
