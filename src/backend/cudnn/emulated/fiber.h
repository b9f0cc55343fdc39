#pragma once

#include <cstddef>

namespace singa::cuda::emulated {

/// A function that runs on a stack of its own, and can be left and entered again.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// The next Resume calls body(argument), which must not return: it ends with Leave.
  void Start(void (*body)(void*), void* argument);
  /// From outside: runs the fiber until it suspends itself.
  void Resume();
  /// From inside: back to whoever resumed it.
  void Suspend();
  /// The same, for good.
  void Leave();
  /// Whether this is memory of its stack.
  bool Holds(const void* data) const;

 private:
  struct State;
  State* state_ = nullptr;
};

}  // namespace singa::cuda::emulated
