#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <unordered_map>
#include <vector>

#include "singa/core/device.h"

namespace singa {

/// Host memory allocator that keeps freed blocks for later requests. A repeated training step makes
/// no system calls for memory and causes no page faults.
///
/// Small requests (up to kSmall) are served from size classes, which are carved out of chunks.
/// Larger ones are cut, best fit, from segments of at least kSegment bytes; freed pieces merge with
/// free neighbours. Segments use huge pages if the system offers them. With SINGA_ALLOCATOR=system
/// each request goes to the system, for sanitizers.
class CachingAllocator {
 public:
  CachingAllocator();
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// 64-byte aligned, never null. Raises OutOfMemory.
  void* Allocate(size_t bytes);
  /// `bytes` must be the value passed to Allocate.
  void Free(void* data, size_t bytes) noexcept;
  /// Unmaps all huge pages without live blocks, but for those right behind one.
  void EmptyCache();
  /// Unmaps everything.
  void ReleaseAll() noexcept;
  MemoryStats stats() const;
  void ResetPeak();

 private:
  static constexpr size_t kAlign = 64;
  static constexpr size_t kSmall = 128 << 10;
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kSegment = size_t{32} << 20;
  /// Bytes behind a live block that stay mapped: kernels of oneDNN read past the end of a tensor.
  static constexpr size_t kReadPast = size_t{64} << 10;
  static constexpr int kClasses = 60;

  /// A piece of a segment, free or in use; `previous` and `next` are its neighbours by address.
  struct Piece {
    char* data;
    size_t bytes;
    bool free;
    Piece* previous;
    Piece* next;
  };
  struct BySize {
    bool operator()(const Piece* a, const Piece* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  struct Mapping {
    void* data;
    size_t bytes;
  };

  static int ClassOf(size_t bytes);
  static size_t ClassBytes(int index);
  static size_t Rounded(size_t bytes);

  void* AllocateSmall(size_t bytes);
  void* AllocateLarge(size_t bytes);
  void FreeLarge(void* data);
  Piece* NewSegment(size_t bytes);
  void* Map(size_t bytes);
  void EmptyCacheLocked();
  /// Unmaps these huge pages of a free piece. What is left of its segment becomes two.
  void Unmap(Piece* piece, char* begin, char* end);
  void SplitOff(Piece* piece, size_t bytes);
  void Absorb(Piece* piece, Piece* next);

  mutable std::mutex mutex_;
  bool system_;
  size_t physical_;  ///< bytes of physical memory
  std::array<std::vector<void*>, kClasses> small_;
  std::vector<Mapping> small_chunks_;
  char* chunk_cursor_ = nullptr;
  char* chunk_end_ = nullptr;
  std::set<Piece*, BySize> free_;
  std::unordered_map<void*, Piece*> used_;
  std::vector<Mapping> segments_;
  std::unordered_map<void*, size_t> system_live_;
  MemoryStats stats_;
};

}  // namespace singa
