#pragma once

#include <cstddef>
#include <mutex>
#include <unordered_map>

#include "backend/cudnn/allocator.h"
#include "backend/cudnn/runtime.h"
#include "backend/cudnn/staging.h"

namespace singa::cuda {

/// Copies from the host to new memory. They have a stream of their own, so that they travel while
/// what was queued elsewhere runs; its memory comes back to it when those who used it have passed.
/// Thread-safe; for the calling thread's GPU.
class Uploads {
 public:
  Uploads(StreamAllocator& allocator, Stream stream) : allocator_(allocator), stream_(stream) {}

  /// New memory, and the host's on its way there, which has been read when this returns. Waits for
  /// nothing but earlier copies of this kind. `op` as in StreamAllocator::Allocate.
  void* Send(const void* host, size_t bytes, const char* op);
  /// What is queued on `user` from now on finds what was sent to `data`. Other memory, and memory
  /// that was awaited before, is there already.
  void Await(const void* data, Stream user);
  /// The memory is given back.
  void Forget(const void* data) noexcept;
  void Synchronize() { runtime::Synchronize(stream_); }
  void Release();

 private:
  StreamAllocator& allocator_;
  Stream stream_;
  std::mutex staging_mutex_;
  Staging staging_;
  std::mutex sent_mutex_;                        // never held while the host copies
  std::unordered_map<const void*, Event> sent_;  // and awaited by nobody yet
};

}  // namespace singa::cuda
