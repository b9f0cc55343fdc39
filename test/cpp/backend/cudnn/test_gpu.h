#pragma once

#include "backend/cudnn/device.h"
#include "backend/cudnn/kernels/register.h"
#include "backend/cudnn/library/register.h"

namespace singa::test {

/// The emulated GPU, with every kernel.
inline DevicePtr Gpu() {
  static const DevicePtr& gpu = *[] {
    cudnn::RegisterLibraries();
    cuda::RegisterKernels();
    return new DevicePtr(cuda::NewDevice(0));
  }();
  return gpu;
}

}  // namespace singa::test
