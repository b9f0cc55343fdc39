#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "backend/cuda/runtime/allocator.h"
#include "backend/cuda/runtime/runtime.h"
#include "backend/cuda/runtime/staging.h"

namespace singa::cuda {

/// Copies from the host to new memory, on a separate stream, so that they overlap with work on
/// other streams. The memory returns to this stream's pool after its users have passed.
/// Thread-safe. For the calling thread's current GPU.
class Uploads {
 public:
  Uploads(StreamAllocator& allocator, Stream stream) : allocator_(allocator), stream_(stream) {}

  /// Allocates memory and queues the copy; the host's memory has been read when this returns. Waits
  /// only for earlier copies of this class. `op` as in StreamAllocator::Allocate.
  void* Send(const void* host, size_t bytes, const char* op);
  /// Makes work queued on `user` from now on wait for the copy to `data`. Does nothing for other
  /// memory, or if the copy was awaited before.
  void Await(const void* data, Stream user);
  /// To be called before the memory is freed.
  void Forget(const void* data) noexcept;
  void Synchronize() { runtime::Synchronize(stream_); }
  void Release();

 private:
  StreamAllocator& allocator_;
  Stream stream_;
  std::mutex staging_mutex_;
  Staging staging_;
  std::mutex sent_mutex_;                        // not held while the host copies
  std::unordered_map<const void*, Event> sent_;  // not awaited yet
};

}  // namespace singa::cuda
