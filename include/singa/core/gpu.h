#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/device.h"
#include "singa/core/export.h"

namespace singa {

// CUDA GPUs are served by a library of their own, libsinga_cuda.so, which is opened when one of
// these functions is called first: the file named by SINGA_CUDA_LIBRARY, else the one beside
// libsinga.so. Without it, or without a driver, all else works.

/// What a GPU is.
struct GpuProperties {
  std::string name;  ///< says "emulated" where it is the host that computes
  int major = 0;     ///< compute capability
  int minor = 0;
  int multiprocessors = 0;
  uint64_t total_memory = 0;  ///< bytes
  uint64_t free_memory = 0;
};

/// GPUs that can be used; 0 where GpuProblem says why not.
SINGA_API int NumGpus();
/// Why no GPU can be used, in a sentence that says what to install; empty where one can be.
SINGA_API std::string GpuProblem();
/// Raises Unavailable (GpuProblem), or std::invalid_argument where there is no GPU of that number.
SINGA_API GpuProperties GetGpuProperties(int id);
/// The GPU of that number as a device: the same one each time, until it is closed. Raises as
/// GetGpuProperties does.
SINGA_API DevicePtr CreateCudaDevice(int id = 0);
/// What the backend found, for a report: its library, versions, and what is missing.
SINGA_API std::vector<std::string> GpuReport();

}  // namespace singa
