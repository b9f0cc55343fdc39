#pragma once

// What libsinga.so and libsinga_cuda.so know of each other: one C function, and the interface that
// it hands over. Both are built from one tree, so a library of another version is refused.

#include <string>
#include <vector>

#include "singa/core/gpu.h"

namespace singa {

/// Goes up when anything that the two libraries share changes.
inline constexpr int kCudaInterface = 6;

class CudaLibrary {
 public:
  virtual ~CudaLibrary() = default;
  /// Why no GPU can be used; empty where one can be.
  virtual std::string Problem() = 0;
  virtual int NumGpus() = 0;
  virtual GpuProperties Properties(int id) = 0;
  /// A new device; the kernels are registered by then.
  virtual DevicePtr Open(int id) = 0;
  /// Versions, and what is missing for some operations.
  virtual std::vector<std::string> Report() = 0;
};

/// `singa_cuda_open` of libsinga_cuda.so: gives the library, or says why it does not. `version` is
/// singa's.
using CudaOpenFn = const char* (*)(int interface, const char* version, CudaLibrary** library);

}  // namespace singa
