#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backend/cuda/runtime/runtime.h"
#include "singa/core/device.h"

namespace singa::cuda {

/// What the allocator needs from a device. Tests implement it, too.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Null if the device is out of memory.
  virtual void* Malloc(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
  virtual Event Mark(Stream stream) = 0;  ///< marks the stream's current position
  virtual bool Passed(Event mark) = 0;    ///< whether the stream has reached the mark
  virtual void Await(Event mark) = 0;     ///< waits until it has
  virtual void Discard(Event mark) = 0;
};

/// A caching allocator in stream order. Freed memory is available at once to the stream that
/// allocated it, whose work runs in order, and to no other stream. Memory that other streams use,
/// too (RecordUse), is available after they have passed that use.
///
/// Requests are split off segments by best fit (2 MiB segments for small requests, 20 MiB or more
/// for others). Freed pieces merge with free neighbours.
class StreamAllocator {
 public:
  /// `name` appears in messages.
  StreamAllocator(MemorySource& source, std::string name)
      : source_(source), name_(std::move(name)) {}
  ~StreamAllocator() { ReleaseAll(); }
  StreamAllocator(const StreamAllocator&) = delete;
  StreamAllocator& operator=(const StreamAllocator&) = delete;

  /// Returns memory aligned to 512 bytes, never null. `op` names the caller; the string must live
  /// forever. Throws OutOfMemory with a table of live memory.
  void* Allocate(size_t bytes, Stream stream, const char* op);
  void Free(void* data) noexcept;
  /// Declares that work queued on `stream` uses memory that was allocated for another stream.
  void RecordUse(const void* data, Stream stream);
  /// Frees segments without live pieces.
  void EmptyCache();
  void ReleaseAll() noexcept;
  MemoryStats stats() const;
  void ResetPeak();
  /// Live memory by operation, largest first.
  std::string Table() const;

 private:
  static constexpr size_t kAlign = 512;
  static constexpr size_t kSmall = size_t{1} << 20;  ///< larger requests do not use small segments
  static constexpr size_t kSmallSegment = size_t{2} << 20;
  static constexpr size_t kSegment = size_t{20} << 20;

  /// A part of a segment, linked to its neighbours by address.
  struct Piece {
    char* data;
    size_t bytes;
    Stream stream;
    bool small;
    bool free = true;
    Piece* previous = nullptr;
    Piece* next = nullptr;
    const char* op = "";
    std::vector<Stream> users = {};  ///< besides `stream`
  };
  struct BySize {
    bool operator()(const Piece* a, const Piece* b) const {
      return a->bytes != b->bytes ? a->bytes < b->bytes : a->data < b->data;
    }
  };
  using Pool = std::set<Piece*, BySize>;

  Pool& PoolOf(const Piece& piece) { return pools_[{piece.stream, piece.small}]; }
  Piece* TakeFree(size_t bytes, Stream stream, bool small);
  Piece* NewSegment(size_t bytes, Stream stream, bool small);
  void SplitOff(Piece* piece, size_t bytes);
  void Absorb(Piece* piece, Piece* next);
  void GiveBack(Piece* piece);
  void CollectPassed(Stream stream);
  void CollectAll();
  void EmptyCacheLocked();
  std::string TableLocked() const;

  MemorySource& source_;
  std::string name_;
  mutable std::mutex mutex_;
  std::map<std::pair<Stream, bool>, Pool> pools_;
  std::unordered_map<const void*, Piece*> used_;
  std::unordered_map<char*, size_t> segments_;
  /// Freed pieces, with the marks that other streams must reach first.
  std::deque<std::pair<Piece*, std::vector<Event>>> waiting_;
  MemoryStats stats_;
};

}  // namespace singa::cuda
