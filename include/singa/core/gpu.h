#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/device.h"
#include "singa/core/export.h"

namespace singa {

// CUDA support is in a separate library, libsinga_cuda.so. The first call of one of these functions
// opens the file named by SINGA_CUDA_LIBRARY, else the one next to libsinga.so. Without it, or
// without a driver, everything else works.

/// Properties of a GPU.
struct GpuProperties {
  std::string name;  ///< contains "emulated" if the host computes
  int major = 0;     ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  uint64_t total_memory = 0;  ///< bytes
  uint64_t free_memory = 0;
};

/// Number of usable GPUs. If it is 0, GpuProblem() gives the reason.
SINGA_API int NumGpus();
/// Why no GPU is usable and what to install; empty if one is.
SINGA_API std::string GpuProblem();
/// Raises Unavailable with GpuProblem(), or std::invalid_argument if there is no GPU `id`.
SINGA_API GpuProperties GetGpuProperties(int id);
/// The device for GPU `id`. Calls with the same `id` return the same device until it is closed.
/// Raises like GetGpuProperties.
SINGA_API DevicePtr CreateCudaDevice(int id = 0);
/// Lines for a report: the library that was opened, its versions, and what is missing.
SINGA_API std::vector<std::string> GpuReport();

}  // namespace singa
