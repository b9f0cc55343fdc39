#pragma once

#include "backend/cudnn/device.h"
#include "backend/cudnn/kernels/register.h"
#include "backend/cudnn/library/register.h"

namespace singa::test {

/// The emulated GPU, with the libraries' kernels and the sums that these leave to others.
inline DevicePtr Gpu() {
  static const DevicePtr& gpu = *[] {
    cudnn::RegisterLibraries();
    cuda::RegisterReduce();
    return new DevicePtr(cuda::NewDevice(0));
  }();
  return gpu;
}

}  // namespace singa::test
