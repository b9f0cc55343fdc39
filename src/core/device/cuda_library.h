#pragma once

// The interface between libsinga.so and libsinga_cuda.so: one C function, which returns a
// CudaLibrary. Both are built from the same sources; a library of another version is refused.

#include <string>
#include <vector>

#include "singa/core/gpu.h"

namespace singa {

/// Incremented when anything that the two libraries share changes.
inline constexpr int kCudaInterface = 10;

class CudaLibrary {
 public:
  virtual ~CudaLibrary() = default;
  /// Why no GPU is usable; empty if one is.
  virtual std::string Problem() = 0;
  virtual int NumGpus() = 0;
  virtual GpuProperties Properties(int id) = 0;
  /// Creates a device. The kernels are registered when it returns.
  virtual DevicePtr Open(int id) = 0;
  /// Lines with versions, and with what some operations are missing.
  virtual std::vector<std::string> Report() = 0;
};

/// Type of `singa_cuda_open` in libsinga_cuda.so. Sets `library`, or returns why it does not.
/// `version` is singa's.
using CudaOpenFn = const char* (*)(int interface, const char* version, CudaLibrary** library);

}  // namespace singa
