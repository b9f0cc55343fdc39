#pragma once

#include <array>
#include <cstddef>

#include "backend/cudnn/runtime.h"

namespace singa::cuda {

/// Two pieces of pinned memory, so that the host fills or empties one while the other is on its
/// way.
class Staging {
 public:
  static constexpr size_t kBytes = size_t{4} << 20;

  /// Queued on `stream`; the host's memory has been read when this returns. Waits where both pieces
  /// are on their way.
  void ToDevice(char* device, const char* host, size_t bytes, Stream stream);
  /// Waits until all has arrived.
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
