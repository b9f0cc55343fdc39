#pragma once

#include <array>
#include <cstddef>

#include "backend/cuda/runtime/runtime.h"

namespace singa::cuda {

/// Two pieces of pinned memory: the host fills or empties one while the other is being copied.
class Staging {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;

  /// Queues the copy on `stream`. The host's memory has been read when this returns. Waits if
  /// copies from both pieces are pending.
  void ToDevice(char* device, const char* host, size_t bytes, Stream stream);
  /// Waits until all data has arrived.
  void ToHost(char* host, const char* device, size_t bytes, Stream stream);
  void Release();

 private:
  struct Half {
    char* data = nullptr;
    Event moved = nullptr;
  };

  Half& Next();
  static size_t Unload(const Half& half, char* host, size_t bytes);

  std::array<Half, 2> halves_;
  size_t next_ = 0;
};

}  // namespace singa::cuda
