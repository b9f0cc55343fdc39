#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/cudnn/device.h"
#include "backend/cudnn/kernels/register.h"
#include "backend/cudnn/library/register.h"
#include "singa/core/graph.h"

namespace singa::test {

/// The emulated GPU: what cuDNN and cuBLASLt compute there are loops of our own, so tests of it
/// confirm our emulation, and what we do around it. With the libraries' kernels and those that
/// these need or are an alternative to.
inline DevicePtr Gpu() {
  static const DevicePtr& gpu = *[] {
    cudnn::RegisterLibraries();
    cuda::RegisterReduce();
    cuda::RegisterUnary();
    cuda::RegisterBatchNorm();
    cudnn::RegisterAlternatives();
    return new DevicePtr(cuda::NewDevice(0));
  }();
  return gpu;
}

/// What a step of one input records.
inline std::unique_ptr<Graph> GraphOf(const std::function<std::vector<Tensor>(const Tensor&)>& step,
                                      const Tensor& x) {
  const auto recording = std::make_shared<Recording>(x.device(), nullptr);
  recording->Start({x});
  recording->Finish(step(x));
  return std::make_unique<Graph>(recording);
}

}  // namespace singa::test
