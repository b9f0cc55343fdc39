#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/runtime/device.h"
#include "model/dispatch/kernel.h"
#include "singa/core/graph.h"

namespace singa::test {

/// The emulated GPU. Its cuDNN and cuBLASLt are loops of our own, so these tests verify the
/// emulation and our code around the libraries, not the libraries.
inline DevicePtr Gpu() {
  static const DevicePtr& gpu = *[] {
    for (const char* backend : {"cuda_libraries", "cuda", "cuda_alternatives"})
      RegisterBackend(backend);
    return new DevicePtr(cuda::NewDevice(0));
  }();
  return gpu;
}

/// The graph that a step with one input records.
inline std::unique_ptr<Graph> GraphOf(const std::function<std::vector<Tensor>(const Tensor&)>& step,
                                      const Tensor& x) {
  const auto recording = std::make_shared<Recording>(x.device(), nullptr);
  recording->Start({x});
  recording->Finish(step(x));
  return std::make_unique<Graph>(recording);
}

}  // namespace singa::test
