#pragma once

#include <cstddef>
#include <span>

#include "singa/core/device.h"

namespace singa::cudnn {

/// The relative error of a product whose two factors are rounded to TF32's 11 bits.
inline constexpr double kTf32Error = 0x1p-10;

/// A problem that a library has compiled. It runs from any thread, on the GPU for which it was
/// built.
class Executable {
 public:
  virtual ~Executable() = default;
  /// Queues the work. `arguments`: addresses in the problem's order.
  virtual void Run(const Device& device, std::span<void* const> arguments,
                   void* workspace) const = 0;
  virtual size_t workspace_bytes() const = 0;
};

}  // namespace singa::cudnn
