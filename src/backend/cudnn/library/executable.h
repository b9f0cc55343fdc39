#pragma once

#include <cstddef>
#include <span>

#include "singa/core/device.h"

namespace singa::cudnn {

/// What a library has made ready: it runs from any thread, on the GPU that it was built for.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Queues it. `arguments`: addresses, in the order that the problem says.
  virtual void Run(const Device& device, std::span<void* const> arguments,
                   void* workspace) const = 0;
  virtual size_t workspace_bytes() const = 0;
};

}  // namespace singa::cudnn
