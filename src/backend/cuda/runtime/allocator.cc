#include "backend/cuda/runtime/allocator.h"

#include <algorithm>

#include "core/tensor/round_up.h"
#include "singa/core/error.h"

namespace singa::cuda {
namespace {

std::string MiB(size_t bytes) {
  return bytes >> 20 ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes) + " bytes";
}

}  // namespace

void* StreamAllocator::Allocate(size_t bytes, Stream stream, const char* op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t need = RoundUp(std::max<size_t>(bytes, 1), kAlign);
  const bool small = need <= kSmall;
  if (!waiting_.empty()) CollectPassed(stream);
  Piece* piece = TakeFree(need, stream, small);
  if (!piece) piece = NewSegment(need, stream, small);
  SplitOff(piece, need);
  piece->free = false;
  piece->op = op;
  used_[piece->data] = piece;
  ++stats_.allocations;
  stats_.live += piece->bytes;
  stats_.peak = std::max(stats_.peak, stats_.live);
  return piece->data;
}

StreamAllocator::Piece* StreamAllocator::TakeFree(size_t bytes, Stream stream, bool small) {
  Pool& pool = pools_[{stream, small}];
  Piece probe{nullptr, bytes, stream, small};
  const auto found = pool.lower_bound(&probe);
  if (found == pool.end()) return nullptr;
  Piece* piece = *found;
  pool.erase(found);
  return piece;
}

StreamAllocator::Piece* StreamAllocator::NewSegment(size_t bytes, Stream stream, bool small) {
  const size_t usual = small ? kSmallSegment : RoundUp(std::max(bytes, kSegment), kSmallSegment);
  size_t size = usual;
  ++stats_.system_allocations;
  void* data = source_.Malloc(size);
  if (!data) {  // try cached memory: waiting pieces, then free segments
    CollectAll();
    if (Piece* piece = TakeFree(bytes, stream, small)) return piece;
    EmptyCacheLocked();
    data = source_.Malloc(size);
  }
  if (!data && bytes < usual) {  // the last free memory of the device
    size = bytes;
    data = source_.Malloc(size);
  }
  if (!data)
    throw OutOfMemory(detail::Message("memory", MiB(bytes), " asked for on ", name_, "; ",
                                      MiB(stats_.live), " in use, ", MiB(stats_.reserved),
                                      " reserved", TableLocked()));
  stats_.reserved += size;
  segments_[static_cast<char*>(data)] = size;
  return new Piece{static_cast<char*>(data), size, stream, small};
}

void StreamAllocator::SplitOff(Piece* piece, size_t bytes) {
  if (piece->bytes - bytes < (piece->small ? kAlign : kSmall)) return;
  Piece* rest = new Piece{piece->data + bytes, piece->bytes - bytes, piece->stream, piece->small};
  rest->previous = piece;
  rest->next = piece->next;
  if (rest->next) rest->next->previous = rest;
  piece->next = rest;
  piece->bytes = bytes;
  PoolOf(*rest).insert(rest);
}

void StreamAllocator::Absorb(Piece* piece, Piece* next) {
  piece->bytes += next->bytes;
  piece->next = next->next;
  if (piece->next) piece->next->previous = piece;
  delete next;
}

void StreamAllocator::RecordUse(const void* data, Stream stream) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto used = used_.find(data);
  if (used == used_.end() || used->second->stream == stream) return;
  std::vector<Stream>& users = used->second->users;
  if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
}

void StreamAllocator::Free(void* data) noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto used = used_.find(data);
  if (used == used_.end()) return;
  Piece* piece = used->second;
  used_.erase(used);
  stats_.live -= piece->bytes;
  try {
    if (piece->users.empty()) {
      GiveBack(piece);
      return;
    }
    std::vector<Event> marks;
    for (Stream stream : piece->users) marks.push_back(source_.Mark(stream));
    piece->users.clear();
    waiting_.emplace_back(piece, std::move(marks));
  } catch (...) {
    // Out of host memory, or the device has failed: the piece is lost until the device closes.
  }
}

void StreamAllocator::GiveBack(Piece* piece) {
  if (piece->next && piece->next->free) {
    PoolOf(*piece->next).erase(piece->next);
    Absorb(piece, piece->next);
  }
  if (piece->previous && piece->previous->free) {
    piece = piece->previous;
    PoolOf(*piece).erase(piece);
    Absorb(piece, piece->next);
  }
  piece->free = true;
  PoolOf(*piece).insert(piece);
}

/// Returns waiting pieces of `stream` that other streams no longer use.
void StreamAllocator::CollectPassed(Stream stream) {
  for (size_t i = waiting_.size(); i > 0; --i) {
    auto [piece, marks] = std::move(waiting_.front());
    waiting_.pop_front();
    const bool passed =
        piece->stream == stream &&
        std::all_of(marks.begin(), marks.end(), [&](Event m) { return source_.Passed(m); });
    if (passed) {
      for (Event mark : marks) source_.Discard(mark);
      GiveBack(piece);
    } else {
      waiting_.emplace_back(piece, std::move(marks));
    }
  }
}

void StreamAllocator::CollectAll() {
  for (; !waiting_.empty(); waiting_.pop_front()) {
    const auto& [piece, marks] = waiting_.front();
    for (Event mark : marks) {
      source_.Await(mark);
      source_.Discard(mark);
    }
    GiveBack(piece);
  }
}

void StreamAllocator::EmptyCache() {
  const std::lock_guard<std::mutex> lock(mutex_);
  CollectAll();
  EmptyCacheLocked();
}

void StreamAllocator::EmptyCacheLocked() {
  for (auto& [key, pool] : pools_) {
    for (auto it = pool.begin(); it != pool.end();) {
      Piece* piece = *it;
      if (piece->previous || piece->next) {
        ++it;
        continue;
      }
      source_.Free(piece->data);
      segments_.erase(piece->data);
      stats_.reserved -= piece->bytes;
      it = pool.erase(it);
      delete piece;
    }
  }
}

void StreamAllocator::ReleaseAll() noexcept {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& [key, pool] : pools_)
    for (Piece* piece : pool) delete piece;
  for (auto& [data, piece] : used_) delete piece;
  for (auto& [piece, marks] : waiting_) delete piece;
  try {
    for (auto& [piece, marks] : waiting_)
      for (Event mark : marks) source_.Discard(mark);
    for (auto& [data, bytes] : segments_) source_.Free(data);
  } catch (...) {
    // A failed device frees nothing.
  }
  pools_.clear();
  used_.clear();
  waiting_.clear();
  segments_.clear();
  stats_.live = stats_.reserved = 0;
}

MemoryStats StreamAllocator::stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

void StreamAllocator::ResetPeak() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stats_.peak = stats_.live;
}

std::string StreamAllocator::Table() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return TableLocked();
}

std::string StreamAllocator::TableLocked() const {
  constexpr size_t kRows = 10;
  struct Row {
    size_t bytes = 0;
    size_t count = 0;
    std::string op;
  };
  std::map<std::string, Row> by_op;
  for (const auto& [data, piece] : used_) {
    Row& row = by_op[piece->op];
    row.op = piece->op;
    row.bytes += piece->bytes;
    ++row.count;
  }
  std::vector<Row> rows;
  for (auto& [op, row] : by_op) rows.push_back(std::move(row));
  std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.bytes > b.bytes; });
  std::string text;
  for (size_t i = 0; i < rows.size() && i < kRows; ++i)
    text += "\n  " + MiB(rows[i].bytes) + " in " + std::to_string(rows[i].count) +
            (rows[i].count == 1 ? " block" : " blocks") + ", allocated at " +
            (rows[i].op.empty() ? "the start" : rows[i].op);
  if (rows.size() > kRows) text += "\n  and " + std::to_string(rows.size() - kRows) + " others";
  return text;
}

}  // namespace singa::cuda
