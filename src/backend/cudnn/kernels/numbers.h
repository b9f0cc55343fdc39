#pragma once

// What kernels make of their operation's Scalars: learning rates, a place in the random sequence. A
// kernel that executes is launched with them. Captured work repeats its arguments, and its Scalars
// are others at each launch: there a kernel finds its numbers in the GPU's memory, where they are
// sent ahead of it.

#include <cstddef>
#include <functional>
#include <new>
#include <type_traits>
#include <vector>

#include "backend/cudnn/launch.h"
#include "singa/core/block.h"
#include "singa/core/plan.h"

namespace singa::cuda {

/// An argument of a kernel.
template <class T>
struct Numbers {
  T given;
  const T* live = nullptr;  ///< where they lie instead

  __device__ __forceinline__ T Get() const {
    if (live) return *live;
    return given;
  }
};

/// The numbers of one piece of captured work.
class LiveNumbers {
 public:
  static constexpr size_t kBytes = 64;  ///< of a place
  /// One launch sends all, as an argument of its kernel: such arguments cost little up to 4 KB.
  static constexpr size_t kMostPlaces = 60;

  /// Takes memory.
  explicit LiveNumbers(const DevicePtr& device) : memory_(device, kMostPlaces * kBytes) {}

  /// Calls queue(). Kernels that this thread queues there, and that ask for numbers of `scalars`,
  /// will find them here; false where none has asked. The scalars live as long as this.
  bool Follow(const Scalars& scalars, const std::function<void()>& queue);
  /// Those that this thread follows these scalars with; null where it does not.
  static LiveNumbers* Of(const Scalars& scalars);

  /// A place in the GPU's memory, for what make(place on the host) makes before each launch. Raises
  /// NotCapturable when there is no further one.
  const void* Add(std::function<void(void*)> make);

  /// Queued: what the scalars give now.
  void Send(Stream stream) const;

 private:
  Block memory_;
  std::vector<std::function<void(void*)>> makers_;
};

/// make(execution.scalars), and in captured work what that gives at each launch. For everything
/// that a kernel's launch takes from the scalars; not even its grid may depend on them otherwise.
template <class Make, class T = std::invoke_result_t<Make, const Scalars&>>
Numbers<T> NumbersOf(const Execution& execution, const Make& make) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= LiveNumbers::kBytes);
  const Scalars& scalars = execution.scalars;
  Numbers<T> numbers{make(scalars)};
  if (LiveNumbers* live = LiveNumbers::Of(scalars))
    numbers.live = static_cast<const T*>(
        live->Add([&scalars, make](void* place) { ::new (place) T(make(scalars)); }));
  return numbers;
}

}  // namespace singa::cuda
