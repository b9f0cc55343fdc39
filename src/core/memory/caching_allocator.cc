#include "core/memory/caching_allocator.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <memory>

#include "core/tensor/round_up.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa {
namespace {

std::string MiB(size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

CachingAllocator::CachingAllocator() {
  system_ = EnvironmentValue("SINGA_ALLOCATOR") == "system";
  physical_ =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGE_SIZE));
}

CachingAllocator::~CachingAllocator() { ReleaseAll(); }

// Four classes per power of two, from 64 bytes up: rounding up adds at most a quarter of a request.
int CachingAllocator::ClassOf(size_t bytes) {
  const size_t units = std::max<size_t>((bytes + kAlign - 1) / kAlign, 1);
  if (units <= 4) return static_cast<int>(units) - 1;
  const int log = std::bit_width(units - 1) - 1;  // 2^log < units <= 2^(log+1)
  const size_t step = (size_t{1} << log) / 4;
  const size_t quarter = (units - (size_t{1} << log) + step - 1) / step;  // 1..4
  return 4 * (log - 1) + static_cast<int>(quarter) - 1;
}

size_t CachingAllocator::ClassBytes(int index) {
  if (index < 4) return (static_cast<size_t>(index) + 1) * kAlign;
  const int log = index / 4 + 1;
  const size_t quarter = static_cast<size_t>(index % 4) + 1;
  return ((size_t{1} << log) + quarter * ((size_t{1} << log) / 4)) * kAlign;
}

size_t CachingAllocator::Rounded(size_t bytes) {
  return bytes <= kSmall ? ClassBytes(ClassOf(bytes)) : RoundUp(bytes, 4096);
}

void* CachingAllocator::Allocate(size_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (bytes > physical_)
    throw OutOfMemory(
        detail::Message("memory", MiB(bytes), " asked for, the machine has ", MiB(physical_)));
  void* data = nullptr;
  if (system_) {
    if (posix_memalign(&data, kAlign, std::max(bytes, kAlign)) != 0) data = nullptr;
    if (!data)
      throw OutOfMemory(
          detail::Message("memory", MiB(bytes), " asked for, the system has none left"));
    system_live_[data] = bytes;
    ++stats_.system_allocations;
    stats_.reserved += Rounded(bytes);
  } else {
    data = bytes <= kSmall ? AllocateSmall(bytes) : AllocateLarge(bytes);
  }
  ++stats_.allocations;
  stats_.live += Rounded(bytes);
  stats_.peak = std::max(stats_.peak, stats_.live);
  return data;
}

void CachingAllocator::Free(void* data, size_t bytes) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.live -= Rounded(bytes);
  if (system_) {
    stats_.reserved -= Rounded(bytes);
    system_live_.erase(data);
    std::free(data);
    return;
  }
  try {
    if (bytes <= kSmall) {
      small_[ClassOf(bytes)].push_back(data);
    } else {
      FreeLarge(data);
    }
  } catch (const std::bad_alloc&) {
    // No memory for bookkeeping: the block is lost until the device closes.
  }
}

void* CachingAllocator::AllocateSmall(size_t bytes) {
  const int index = ClassOf(bytes);
  std::vector<void*>& list = small_[index];
  if (!list.empty()) {
    void* data = list.back();
    list.pop_back();
    return data;
  }
  const size_t need = ClassBytes(index);
  if (static_cast<size_t>(chunk_end_ - chunk_cursor_) < need) {
    char* chunk = static_cast<char*>(Map(kHugePage));
    small_chunks_.push_back({chunk, kHugePage});
    chunk_cursor_ = chunk;
    chunk_end_ = chunk + kHugePage;
  }
  void* data = chunk_cursor_;
  chunk_cursor_ += need;
  return data;
}

void* CachingAllocator::AllocateLarge(size_t bytes) {
  const size_t need = Rounded(bytes);
  Piece probe{nullptr, need, true, nullptr, nullptr};
  auto found = free_.lower_bound(&probe);
  Piece* piece = found != free_.end() ? *found : NewSegment(need);
  if (found != free_.end()) free_.erase(found);
  SplitOff(piece, need);
  piece->free = false;
  used_[piece->data] = piece;
  return piece->data;
}

void CachingAllocator::SplitOff(Piece* piece, size_t bytes) {
  const size_t left = piece->bytes - bytes;
  // Small leftovers of a large block's own segment stay unused: a live block in them would keep the
  // whole segment mapped after the large block is freed.
  const bool is_segment = !piece->previous && !piece->next && piece->bytes > kSegment;
  if (left < (is_segment ? kHugePage : kSmall)) return;
  Piece* rest = new Piece{piece->data + bytes, left, true, piece, piece->next};
  if (rest->next) rest->next->previous = rest;
  piece->next = rest;
  piece->bytes = bytes;
  free_.insert(rest);
}

void CachingAllocator::Absorb(Piece* piece, Piece* next) {
  piece->bytes += next->bytes;
  piece->next = next->next;
  if (piece->next) piece->next->previous = piece;
  delete next;
}

void CachingAllocator::FreeLarge(void* data) {
  auto used = used_.find(data);
  if (used == used_.end()) return;
  Piece* piece = used->second;
  used_.erase(used);
  if (piece->next && piece->next->free) {
    free_.erase(piece->next);
    Absorb(piece, piece->next);
  }
  if (piece->previous && piece->previous->free) {
    piece = piece->previous;
    free_.erase(piece);
    Absorb(piece, piece->next);
  }
  piece->free = true;
  free_.insert(piece);
}

CachingAllocator::Piece* CachingAllocator::NewSegment(size_t bytes) {
  const size_t size = RoundUp(std::max(bytes, kSegment), kHugePage);
  void* data = Map(size);
  segments_.push_back({data, size});
  return new Piece{static_cast<char*>(data), size, true, nullptr, nullptr};
}

void* CachingAllocator::Map(size_t bytes) {
  ++stats_.system_allocations;
  // mmap overcommits: a step that touches more than the physical memory would be killed instead of
  // getting an error.
  if (stats_.reserved + bytes > physical_) EmptyCacheLocked();
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (stats_.reserved + bytes > physical_) break;
    // Map one huge page more to align the start to a huge page, then unmap both ends.
    const size_t mapped = bytes + kHugePage;
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED) {
      char* begin = static_cast<char*>(base);
      char* aligned =
          reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage));
      if (aligned > begin) munmap(begin, static_cast<size_t>(aligned - begin));
      const size_t tail = static_cast<size_t>(begin + mapped - (aligned + bytes));
      if (tail > 0) munmap(aligned + bytes, tail);
      madvise(aligned, bytes, MADV_HUGEPAGE);  // may fail: huge pages are optional
      stats_.reserved += bytes;
      return aligned;
    }
    EmptyCacheLocked();
  }
  throw OutOfMemory(detail::Message("memory", MiB(bytes), " asked for; ", MiB(stats_.live),
                                    " in use, ", MiB(stats_.reserved),
                                    " reserved, the machine has ", MiB(physical_)));
}

void CachingAllocator::EmptyCache() {
  std::lock_guard<std::mutex> lock(mutex_);
  EmptyCacheLocked();
}

void CachingAllocator::EmptyCacheLocked() {
  const auto aligned = [](char* address, size_t up) {
    return reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(address) + up) / kHugePage *
                                   kHugePage);
  };
  // What is left of a piece is smaller, so it comes before `it`.
  for (auto it = free_.begin(); it != free_.end();) {
    Piece* piece = *it;
    ++it;
    const size_t kept = piece->previous ? kReadPast : 0;
    char* begin = aligned(piece->data + kept, kHugePage - 1);
    char* end = aligned(piece->data + piece->bytes, 0);
    if (begin < end) Unmap(piece, begin, end);
  }
}

void CachingAllocator::Unmap(Piece* piece, char* begin, char* end) {
  auto rest = std::make_unique<Piece>(Piece{end, 0, true, nullptr, piece->next});
  segments_.reserve(segments_.size() + 1);
  const auto bytes = static_cast<size_t>(end - begin);
  if (munmap(begin, bytes) != 0) return;  // it would be one mapping too many
  stats_.reserved -= bytes;
  free_.erase(piece);
  rest->bytes = static_cast<size_t>(piece->data + piece->bytes - end);
  Piece* behind = rest->bytes > 0 ? rest.release() : nullptr;
  if (behind) free_.insert(behind);
  if (piece->next) piece->next->previous = behind;
  piece->next = nullptr;
  piece->bytes = static_cast<size_t>(begin - piece->data);
  if (piece->bytes > 0) {
    free_.insert(piece);
  } else {
    if (piece->previous) piece->previous->next = nullptr;
    delete piece;
  }
  const auto segment = std::find_if(segments_.begin(), segments_.end(), [&](const Mapping& m) {
    return m.data <= begin && begin < static_cast<char*>(m.data) + m.bytes;
  });
  const auto before = static_cast<size_t>(begin - static_cast<char*>(segment->data));
  const size_t after = segment->bytes - before - bytes;
  segment->bytes = before;
  if (before == 0) segments_.erase(segment);
  if (after > 0) segments_.push_back({end, after});
}

void CachingAllocator::ReleaseAll() noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Piece* piece : free_) delete piece;
  for (auto& [data, piece] : used_) delete piece;
  for (auto& [data, bytes] : system_live_) std::free(data);
  for (const Mapping& m : segments_) munmap(m.data, m.bytes);
  for (const Mapping& m : small_chunks_) munmap(m.data, m.bytes);
  for (auto& list : small_) list.clear();
  free_.clear();
  used_.clear();
  system_live_.clear();
  segments_.clear();
  small_chunks_.clear();
  chunk_cursor_ = chunk_end_ = nullptr;
  stats_.live = stats_.reserved = 0;
}

MemoryStats CachingAllocator::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void CachingAllocator::ResetPeak() {
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak = stats_.live;
}

}  // namespace singa
