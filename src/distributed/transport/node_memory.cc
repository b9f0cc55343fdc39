#include "distributed/transport/node_memory.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr size_t kPage = 4096;
constexpr uint64_t kBuffersOfNode = 4, kMostShared = 16;
// Of a rank, all chunks together: for few nodes, and for many.
constexpr size_t kFewBytes = size_t{1} << 20, kMostBytes = size_t{16} << 20;
constexpr size_t kShortestChunk = size_t{16} << 10, kLongestChunk = size_t{64} << 10;
constexpr size_t kFailure = 4096;
constexpr int64_t kSleep = 20'000'000;       // nanoseconds between two looks at a rank's process
constexpr uint64_t kDecision = 300'000'000;  // nanoseconds that a proposed error may take
constexpr auto kLook = std::chrono::microseconds(50);

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// In one node four chunks are enough. A chunk goes to the last node and back: for N nodes these
/// are 2·(N - 1) hops. For each there are two chunks, one on its way while the other one is added
/// up or waits for its thread. Two of 64 KiB are what 10 Gbit/s carry in 0.1 ms.
uint64_t BuffersFor(int nodes) {
  return nodes == 1 ? kBuffersOfNode : std::bit_ceil(4 * static_cast<uint64_t>(nodes));
}

size_t ChunkBytes(uint64_t buffers) {
  const size_t few = kFewBytes / buffers;
  return few >= kLongestChunk ? few
                              : std::clamp(kMostBytes / buffers, kShortestChunk, kLongestChunk);
}

void Sleep(const std::atomic<uint32_t>& word, uint32_t value, int64_t most) {
  const timespec time{0, most};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &time, nullptr, 0);
}

void WakeSleepers(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

struct NodeMemory::Shared {
  std::atomic<uint32_t> world_size, joined;
  std::atomic<Failure> failure;
  alignas(64) std::atomic<uint32_t> posted;
  std::atomic<uint32_t> post_sleepers;
  char text[kFailure];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

NodeMemory::NodeMemory(const std::string& job, Nodes nodes)
    : nodes_(std::move(nodes)),
      buffers_(BuffersFor(nodes_.count())),
      shared_buffers_(std::min(buffers_, kMostShared)),
      chunk_bytes_(ChunkBytes(buffers_)),
      segment_(nodes_.count() == 1 ? job : job + "-node" + std::to_string(nodes_.own()),
               Pages(sizeof(Shared)) +
                   static_cast<size_t>(nodes_.world_size()) * Pages(sizeof(RankState)) +
                   OwnBytes() +
                   (static_cast<size_t>(nodes_.world_size()) - local_ranks()) * shared_buffers_ *
                       chunk_bytes_) {}

size_t NodeMemory::OwnBytes() const {
  return (local_ranks() + (nodes_.count() == 1 ? 1 : 2)) * buffers_ * chunk_bytes_;
}

RankState& NodeMemory::At(int rank) const {
  char* start = static_cast<char*>(segment_.data()) + Pages(sizeof(Shared));
  return *reinterpret_cast<RankState*>(start +
                                       static_cast<size_t>(rank) * Pages(sizeof(RankState)));
}

bool NodeMemory::Lives(int rank) const {
  return nodes_.IsLocal(rank) ? At(rank).process.Lives() : At(rank).ended.load() == 0;
}

char* NodeMemory::Own(size_t kind, uint64_t number) const {
  char* start = static_cast<char*>(segment_.data()) + Pages(sizeof(Shared)) +
                static_cast<size_t>(nodes_.world_size()) * Pages(sizeof(RankState));
  return start + (kind * buffers_ + number % buffers_) * chunk_bytes_;
}

char* NodeMemory::Slot(int rank, uint64_t number) const {
  const int first = nodes_.first(nodes_.own());
  if (nodes_.IsLocal(rank)) return Own(static_cast<size_t>(rank - first), number);
  const size_t other = static_cast<size_t>(rank) - (rank < first ? 0 : local_ranks());
  return Own(0, 0) + OwnBytes() +
         (other * shared_buffers_ + number % shared_buffers_) * chunk_bytes_;
}

void NodeMemory::Joined() {
  const int own = nodes_.own();
  const auto ranks = static_cast<uint32_t>(nodes_.end(own) - nodes_.first(own));
  if (shared().joined.fetch_add(1) + 1 == ranks) segment_.Unlink();
}

void NodeMemory::CheckWorldSize() {
  uint32_t known = 0;
  const auto size = static_cast<uint32_t>(nodes_.world_size());
  Check(shared().world_size.compare_exchange_strong(known, size) || known == size, "Communicator",
        "rank ", nodes_.rank(), " has a world_size of ", size, ", another rank of ", known);
}

void NodeMemory::Wake(RankState& rank) const noexcept {
  rank.event.fetch_add(1);
  if (rank.sleepers.load() != 0) WakeSleepers(rank.event);
}

void NodeMemory::AwaitChange(RankState& rank, uint32_t event) const noexcept {
  rank.sleepers.fetch_add(1);
  Sleep(rank.event, event, kSleep);
  rank.sleepers.fetch_sub(1);
}

void NodeMemory::Post() const noexcept {
  if (nodes_.count() == 1) return;
  shared().posted.fetch_add(1);
  if (shared().post_sleepers.load() != 0) WakeSleepers(shared().posted);
}

uint32_t NodeMemory::posted() const { return shared().posted.load(); }

void NodeMemory::AwaitPost(uint32_t posted, int64_t most) const noexcept {
  shared().post_sleepers.fetch_add(1);
  Sleep(shared().posted, posted, most);
  shared().post_sleepers.fetch_sub(1);
}

NodeMemory::Failure NodeMemory::failure() const { return shared().failure.load(); }

std::string NodeMemory::failure_text() const { return shared().text; }

void NodeMemory::WakeAll() const noexcept {
  for (int r = 0; r < nodes_.world_size(); ++r) {
    At(r).event.fetch_add(1);
    WakeSleepers(At(r).event);
  }
  Post();
}

/// Writes the text if the state is `from`.
bool NodeMemory::Write(Failure from, const std::string& text, Failure to) const noexcept {
  if (!shared().failure.compare_exchange_strong(from, Failure::kWriting)) return false;
  std::strncpy(shared().text, text.c_str(), kFailure - 1);
  shared().failure.store(to);
  WakeAll();
  return true;
}

void NodeMemory::Propose(const std::string& text) const noexcept {
  Write(Failure::kNone, text, nodes_.own() == 0 ? Failure::kDecided : Failure::kProposed);
}

void NodeMemory::Decide(const std::string& text) const noexcept {
  const uint64_t end = SharedClock() + kDecision;
  while (failure() != Failure::kDecided && SharedClock() < end) {
    if (Write(Failure::kNone, text, Failure::kDecided)) return;
    if (Write(Failure::kProposed, text, Failure::kDecided)) return;
    std::this_thread::sleep_for(kLook);  // a rank of this node is writing
  }
}

std::string NodeMemory::Fail(const std::string& text) const noexcept {
  Propose(text);
  const uint64_t end = SharedClock() + kDecision;
  while (failure() != Failure::kDecided) {
    if (SharedClock() > end) {
      // No answer from the first node, or the rank that was writing has been killed.
      Failure proposed = Failure::kProposed;
      if (shared().failure.compare_exchange_strong(proposed, Failure::kDecided)) WakeAll();
      if (failure() != Failure::kDecided) return text;
      break;
    }
    std::this_thread::sleep_for(kLook);
  }
  return shared().text;
}

}  // namespace singa::distributed
