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

/// Host memory that is kept: freed blocks go to lists from which later requests are served, so that
/// a training step that repeats asks the system for nothing and faults no page.
///
/// Small requests (up to kSmall) come from size classes carved out of chunks. Larger ones are cut,
/// best fit, out of segments of at least kSegment bytes, and merge with free neighbours when they
/// come back. Segments lie on huge pages where the system offers them. With SINGA_ALLOCATOR=system
/// every request goes to the system, for sanitizers.
class CachingAllocator {
 public:
  CachingAllocator();
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// 64-byte aligned, never null. Raises OutOfMemory.
  void* Allocate(size_t bytes);
  /// `bytes` as passed to Allocate.
  void Free(void* data, size_t bytes) noexcept;
  /// Unmaps segments that are wholly free.
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
  static constexpr int kClasses = 60;

  /// A stretch of a segment, free or in use; neighbours by address.
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
  void SplitOff(Piece* piece, size_t bytes);
  void Absorb(Piece* piece, Piece* next);

  mutable std::mutex mutex_;
  bool system_;
  size_t physical_;  ///< bytes of memory that the machine has
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
