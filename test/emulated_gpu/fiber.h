#pragma once

#include <cstddef>

namespace singa::cuda::emulated {

/// A function with its own stack, which can be suspended and resumed.
class Fiber {
 public:
  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Makes the next Resume call body(argument), which must not return but end with Leave.
  void Start(void (*body)(void*), void* argument);
  /// Called from outside: runs the fiber until it suspends itself.
  void Resume();
  /// Called from inside: returns to the caller of Resume.
  void Suspend();
  /// Like Suspend, but the fiber cannot be resumed.
  void Leave();
  /// Whether `data` is on the fiber's stack.
  bool Holds(const void* data) const;

 private:
  struct State;
  State* state_ = nullptr;
};

}  // namespace singa::cuda::emulated
