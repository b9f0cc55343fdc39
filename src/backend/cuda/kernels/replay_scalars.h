#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "backend/cuda/runtime/runtime.h"
#include "singa/core/block.h"
#include "singa/core/plan.h"

namespace singa::cuda {

/// What the kernels of one captured graph read of their Scalars, in the GPU's memory.
class ReplayScalars {
 public:
  static constexpr size_t kBytes = 64;  ///< of a slot
  /// One launch sends all slots, as an argument of its kernel: arguments cost little up to 4 KB.
  static constexpr size_t kMaxSlots = 60;

  /// Allocates the slots.
  explicit ReplayScalars(const DevicePtr& device) : memory_(device, kMaxSlots * kBytes) {}

  /// Calls queue(). Kernels that this thread queues there with arguments from `scalars` read them
  /// here. Returns whether there is such a kernel. The scalars have to outlive this.
  bool Follow(const Scalars& scalars, const std::function<void()>& queue);
  /// The one whose Follow(scalars) runs on this thread; null if there is none.
  static ReplayScalars* Of(const Scalars& scalars);

  /// A slot in the GPU's memory. make(slot on the host) fills it before each launch. Throws
  /// NotCapturable when all slots are taken.
  const void* Add(std::function<void(void*)> make);

  /// Queues a kernel that fills all slots from the current scalars.
  void Send(Stream stream) const;

 private:
  Block memory_;
  std::vector<std::function<void(void*)>> makers_;
};

}  // namespace singa::cuda
