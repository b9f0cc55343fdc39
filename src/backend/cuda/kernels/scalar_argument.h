#pragma once

// Arguments of kernels that follow from an operation's Scalars: learning rates, a position in the
// random sequence. An executed kernel gets them by value. A captured graph repeats the arguments of
// its kernels, while Scalars change at each launch: there a kernel reads them from the GPU's
// memory, to which ReplayScalars sends them before the graph.

#include <new>
#include <type_traits>

#include "backend/cuda/kernels/replay_scalars.h"
#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {

/// An argument by value, or in the GPU's memory.
template <class T>
struct ScalarArgument {
  T value;
  const T* live = nullptr;  ///< replaces `value` where it is not null

  __device__ __forceinline__ T Get() const {
    if (live) return *live;
    return value;
  }
};

/// make(execution.scalars); in a captured graph, make(scalars) of each launch. A launch may use the
/// scalars in no other way, not even for its grid.
template <class Make, class T = std::invoke_result_t<Make, const Scalars&>>
ScalarArgument<T> ScalarArgumentOf(const Execution& execution, const Make& make) {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= ReplayScalars::kBytes);
  const Scalars& scalars = execution.scalars;
  ScalarArgument<T> argument{make(scalars)};
  if (ReplayScalars* live = ReplayScalars::Of(scalars))
    argument.live = static_cast<const T*>(
        live->Add([&scalars, make](void* place) { ::new (place) T(make(scalars)); }));
  return argument;
}

}  // namespace singa::cuda
