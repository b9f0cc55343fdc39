#include "distributed/node_memory.h"

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
constexpr size_t kBufferBytes = size_t{1} << 20;  // of a rank, all chunks together
constexpr uint64_t kFewestBuffers = 4, kMostBuffers = 16;
constexpr size_t kFailure = 4096;
constexpr int64_t kSleep = 20'000'000;       // nanoseconds between two looks at a rank's process
constexpr uint64_t kDecision = 300'000'000;  // nanoseconds that a proposed error may take
constexpr auto kLook = std::chrono::microseconds(50);

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

/// In one node four chunks are enough. A chunk goes to the last node and back, so that twice as
/// many as there are nodes are on their way, and as many again are filled and emptied.
uint64_t BuffersFor(int nodes) {
  if (nodes == 1) return kFewestBuffers;
  return std::min(kMostBuffers, std::bit_ceil(4 * static_cast<uint64_t>(nodes)));
}

void Sleep(const std::atomic<uint32_t>& word, uint32_t value) {
  const timespec most{0, kSleep};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &most, nullptr, 0);
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
      chunk_bytes_(kBufferBytes / buffers_),
      segment_(nodes_.count() == 1 ? job : job + "-node" + std::to_string(nodes_.own()),
               Pages(sizeof(Shared)) +
                   static_cast<size_t>(nodes_.world_size()) * Pages(sizeof(RankState)) +
                   (static_cast<size_t>(nodes_.world_size()) + (nodes_.count() == 1 ? 1 : 2)) *
                       kBufferBytes) {}

RankState& NodeMemory::At(int rank) const {
  char* start = static_cast<char*>(segment_.data()) + Pages(sizeof(Shared));
  return *reinterpret_cast<RankState*>(start +
                                       static_cast<size_t>(rank) * Pages(sizeof(RankState)));
}

bool NodeMemory::Lives(int rank) const {
  return nodes_.IsLocal(rank) ? At(rank).process.Lives() : At(rank).ended.load() == 0;
}

char* NodeMemory::Slot(int rank, uint64_t number) const {
  char* start = static_cast<char*>(segment_.data()) + Pages(sizeof(Shared)) +
                static_cast<size_t>(nodes_.world_size()) * Pages(sizeof(RankState));
  return start + static_cast<size_t>(rank) * kBufferBytes + number % buffers_ * chunk_bytes_;
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
  Sleep(rank.event, event);
  rank.sleepers.fetch_sub(1);
}

void NodeMemory::Post() const noexcept {
  if (nodes_.count() == 1) return;
  shared().posted.fetch_add(1);
  if (shared().post_sleepers.load() != 0) WakeSleepers(shared().posted);
}

uint32_t NodeMemory::posted() const { return shared().posted.load(); }

void NodeMemory::AwaitPost(uint32_t posted) const noexcept {
  shared().post_sleepers.fetch_add(1);
  Sleep(shared().posted, posted);
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
