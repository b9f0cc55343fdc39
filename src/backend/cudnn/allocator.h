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

#include "backend/cudnn/runtime.h"
#include "singa/core/device.h"

namespace singa::cuda {

/// What a caching allocator asks of a device; tests play it.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Null where there is not so much left.
  virtual void* Malloc(size_t bytes) = 0;
  virtual void Free(void* data) = 0;
  virtual Event Mark(Stream stream) = 0;  ///< where the stream is now
  virtual bool Passed(Event mark) = 0;    ///< whether it has come by
  virtual void Await(Event mark) = 0;     ///< until it has
  virtual void Discard(Event mark) = 0;
};

/// Device memory that is kept, in the order of streams: what is freed may be handed out again at
/// once to the stream that used it, whose work runs in order, and to nobody else. What other
/// streams use too (RecordUse) is handed out again when they have come by.
///
/// Requests are cut, best fit, out of segments (2 MiB for small ones, 20 MiB or more for others),
/// and merge with free neighbours when they come back.
class StreamAllocator {
 public:
  /// `name` is for messages.
  StreamAllocator(MemorySource& source, std::string name)
      : source_(source), name_(std::move(name)) {}
  ~StreamAllocator() { ReleaseAll(); }
  StreamAllocator(const StreamAllocator&) = delete;
  StreamAllocator& operator=(const StreamAllocator&) = delete;

  /// 512-byte aligned, never null. `op` (a string that lives for ever) names who asked. Raises
  /// OutOfMemory, with a table of what is live.
  void* Allocate(size_t bytes, Stream stream, const char* op);
  void Free(void* data) noexcept;
  /// Work that is queued on `stream` uses this memory, which was allocated for another stream.
  void RecordUse(const void* data, Stream stream);
  /// Gives back segments that are wholly free.
  void EmptyCache();
  void ReleaseAll() noexcept;
  MemoryStats stats() const;
  void ResetPeak();
  /// Live memory by operation, largest first.
  std::string Table() const;

 private:
  static constexpr size_t kAlign = 512;
  static constexpr size_t kSmall = size_t{1} << 20;  ///< larger ones do not share small segments
  static constexpr size_t kSmallSegment = size_t{2} << 20;
  static constexpr size_t kSegment = size_t{20} << 20;

  /// A stretch of a segment; neighbours by address.
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
  /// Freed, and waiting for what other streams have passed.
  std::deque<std::pair<Piece*, std::vector<Event>>> waiting_;
  MemoryStats stats_;
};

}  // namespace singa::cuda
