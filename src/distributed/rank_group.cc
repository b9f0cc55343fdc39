#include "distributed/rank_group.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <thread>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kFailure = 4096;
/// A wait tries this often before it sleeps: for some microseconds, or a few hundred.
constexpr int kSpins = 100, kPatientSpins = 5000;
constexpr int kYield = 64;                // tries after which another thread may have the core
constexpr int64_t kSleep = 20'000'000;    // nanoseconds between two looks at a rank's process
constexpr uint64_t kGrace = 300'000'000;  // nanoseconds that a message waits for other ranks
constexpr double kSilent = 1;             // seconds without a beat after which it is told
constexpr int kShownAtOnce = 8;           // ranks that a message lists

size_t Pages(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void Sleep(const std::atomic<uint32_t>& word, uint32_t value) {
  const timespec most{0, kSleep};
  syscall(SYS_futex, &word, FUTEX_WAIT, value, &most, nullptr, 0);
}

void WakeSleepers(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

std::string Seconds(double seconds) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(1) << seconds << " s";
  return text.str();
}

std::string Ranks(const std::vector<int>& ranks) {
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  for (size_t i = 0; i < ranks.size() && i < kShownAtOnce; ++i)
    text << (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") << ranks[i];
  if (ranks.size() > kShownAtOnce) text << " and " << ranks.size() - kShownAtOnce << " more";
  return text.str();
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace

/// A rank's state. Processes write to their own and read all.
struct RankGroup::Rank {
  struct Description {
    uint64_t hash, layouts;
    uint32_t length;
    char text[kDescription];
  };
  alignas(64) std::atomic<uint32_t> event;  // changes with everything that another rank waits for
  std::atomic<uint32_t> sleepers;
  std::atomic<uint32_t> joined, left;
  std::atomic<uint64_t> collective;  // number of the last description
  std::array<std::atomic<uint64_t>, 3> counts;
  alignas(64) std::atomic<uint64_t> beat;  // SharedClock
  Process process;
  std::array<Description, 2> descriptions;  // of collectives with even and odd numbers
};

struct RankGroup::Shared {
  std::atomic<uint32_t> world_size, joined;
  std::atomic<uint32_t> failed;  // 1: the text is being written, 2: it is there
  char failure[kFailure];
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

RankGroup::RankGroup(const std::string& name, int rank, int world_size, double timeout)
    : rank_(rank), world_size_(world_size), timeout_(timeout) {
  const char* op = "Communicator";
  Check(world_size >= 1 && world_size <= 4096, op, "world_size must be from 1 to 4096, got ",
        world_size);
  Check(rank >= 0 && rank < world_size, op, "rank must be from 0 to ", world_size - 1, ", got ",
        rank);
  Check(timeout > 0 && std::isfinite(timeout), op, "timeout must be positive, got ", timeout);
  const size_t ranks = static_cast<size_t>(world_size);
  const size_t bytes =
      Pages(sizeof(Shared)) + ranks * Pages(sizeof(Rank)) + (ranks + 1) * kBuffers * kChunkBytes;
  segment_ = std::make_unique<SharedSegment>(name, bytes);
  try {
    Shared& shared = *static_cast<Shared*>(segment_->data());
    uint32_t known = 0;
    const auto size = static_cast<uint32_t>(world_size);
    if (!shared.world_size.compare_exchange_strong(known, size) && known != size)
      throw std::invalid_argument(detail::Message(op, "rank ", rank, " has a world_size of ", size,
                                                  ", another rank of ", known));
    Rank& own = At(rank);
    if (own.joined.exchange(1) != 0)
      throw std::invalid_argument(
          detail::Message(op, "two processes are rank ", rank, " of job ", name));
    own.process = Process::Current();
    Beat();
    own.joined.store(2);
    Wake(own);
    for (int r = 0; r < world_size; ++r)
      WaitFor(
          r, [&] { return At(r).joined.load() == 2; }, "the start of the job");
    if (shared.joined.fetch_add(1) + 1 == size) segment_->Unlink();
  } catch (const std::exception& error) {
    Fail(error.what());
    segment_->Unlink();
    throw;
  }
}

RankGroup::~RankGroup() {
  Rank& own = At(rank_);
  own.left.store(1);
  Wake(own);
}

RankGroup::Rank& RankGroup::At(int rank) const {
  char* start = static_cast<char*>(segment_->data()) + Pages(sizeof(Shared));
  return *reinterpret_cast<Rank*>(start + static_cast<size_t>(rank) * Pages(sizeof(Rank)));
}

char* RankGroup::Slot(int rank, uint64_t number) const {
  char* start = static_cast<char*>(segment_->data()) + Pages(sizeof(Shared)) +
                static_cast<size_t>(world_size_) * Pages(sizeof(Rank));
  return start + (static_cast<size_t>(rank) * kBuffers + number % kBuffers) * kChunkBytes;
}

char* RankGroup::Result(uint64_t number) const { return Slot(world_size_, number); }

void RankGroup::Wake(Rank& rank) const noexcept {
  rank.event.fetch_add(1);
  if (rank.sleepers.load() != 0) WakeSleepers(rank.event);
}

template <class Ready>
void RankGroup::WaitFor(int rank, const Ready& ready, const std::string& where) {
  for (int i = 0, end = patient_ ? kPatientSpins : kSpins; i < end; ++i) {
    if (ready()) return;
    Pause();
    if (i % kYield == kYield - 1) sched_yield();
  }
  const uint64_t start = SharedClock();
  Rank& other = At(rank);
  while (true) {
    other.sleepers.fetch_add(1);
    const uint32_t event = other.event.load();
    const bool is_ready = ready();
    if (!is_ready) Sleep(other.event, event);
    other.sleepers.fetch_sub(1);
    if (is_ready || ready()) return;
    ThrowIfFailed();
    Beat();
    CheckAlive(rank, where, static_cast<double>(SharedClock() - start) * 1e-9);
  }
}

void RankGroup::CheckAlive(int rank, const std::string& where, double waited) {
  const Rank& other = At(rank);
  const auto fail = [&](const std::string& what) {
    Throw(detail::Message("distributed", "rank ", rank, " ", what, "; rank ", rank_,
                          " has waited for it for ", Seconds(waited), " in ", where));
  };
  const bool joined = other.joined.load() == 2;
  if (other.left.load() != 0) fail("has left the job");
  if (joined && !other.process.Lives())
    fail("(process " + std::to_string(other.process.id) + ") has ended");
  if (waited < timeout_) return;
  if (!joined) fail("has not joined the job");
  const double silent = static_cast<double>(SharedClock() - other.beat.load()) * 1e-9;
  const std::string process = "(process " + std::to_string(other.process.id) + ") ";
  if (silent > kSilent)
    fail(process + "is stopped: it gave no sign of life for " + Seconds(silent));
  fail(process + "does something else");
}

void RankGroup::Describe(uint64_t number, const std::string& text, uint64_t layouts) {
  Rank& own = At(rank_);
  Rank::Description& description = own.descriptions[number % 2];
  description.hash = std::hash<std::string>()(text);
  description.layouts = layouts;
  description.length = static_cast<uint32_t>(std::min(text.size(), kDescription));
  std::memcpy(description.text, text.data(), description.length);
  own.collective.store(number);
  Wake(own);
}

bool RankGroup::CompareDescriptions(uint64_t number, const std::string& where) {
  const Rank::Description& own = At(rank_).descriptions[number % 2];
  bool same_layouts = true;
  for (int r = 0; r < world_size_; ++r) {
    const Rank& other = At(r);
    WaitFor(
        r, [&] { return other.collective.load() >= number; }, where);
    const Rank::Description& theirs = other.descriptions[number % 2];
    same_layouts &= theirs.layouts == own.layouts;
    if (theirs.hash == own.hash) continue;
    Throw(Disagreement(AwaitForMessage(number), number, where));
  }
  return same_layouts;
}

/// The ranks that have reached collective `number`. Those that are about to get some time for it,
/// so that the message tells of them.
std::vector<int> RankGroup::AwaitForMessage(uint64_t number) const {
  const uint64_t end = SharedClock() + kGrace;
  while (true) {
    std::vector<int> arrived;
    for (int r = 0; r < world_size_; ++r)
      if (At(r).collective.load() >= number) arrived.push_back(r);
    if (arrived.size() == static_cast<size_t>(world_size_) || SharedClock() > end) return arrived;
    ThrowIfFailed();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// Names the first line in which the descriptions differ, and which ranks have which.
std::string RankGroup::Disagreement(const std::vector<int>& ranks, uint64_t number,
                                    const std::string& where) const {
  std::vector<std::vector<std::string>> texts;
  size_t most = 0;
  for (int r : ranks) {
    const Rank::Description& d = At(r).descriptions[number % 2];
    texts.push_back(Lines({d.text, d.length}));
    most = std::max(most, texts.back().size());
  }
  for (size_t line = 0; line < most; ++line) {
    std::map<std::string, std::vector<int>> having;
    for (size_t i = 0; i < ranks.size(); ++i)
      having[line < texts[i].size() ? texts[i][line] : "nothing more"].push_back(ranks[i]);
    if (having.size() < 2) continue;
    std::vector<std::pair<std::vector<int>, std::string>> parts;
    for (const auto& [text, holders] : having) parts.emplace_back(holders, text);
    std::sort(parts.begin(), parts.end());
    std::ostringstream out;
    for (size_t i = 0; i < parts.size(); ++i)
      out << (i ? "; " : "") << Ranks(parts[i].first) << ": " << parts[i].second;
    return detail::Message("distributed", "the ranks disagree in ", where, ": ", out.str());
  }
  return detail::Message("distributed", "the ranks disagree in ", where, ", beyond the first ",
                         kDescription, " bytes of its description");
}

uint64_t RankGroup::count(Stage stage) const {
  return At(rank_).counts[static_cast<size_t>(stage)].load();
}

void RankGroup::Publish(Stage stage, uint64_t count) {
  Rank& own = At(rank_);
  own.counts[static_cast<size_t>(stage)].store(count);
  Wake(own);
}

void RankGroup::Await(int rank, Stage stage, uint64_t count, const std::string& where) {
  const std::atomic<uint64_t>& now = At(rank).counts[static_cast<size_t>(stage)];
  WaitFor(
      rank, [&] { return now.load() >= count; }, where);
}

void RankGroup::AwaitAll(Stage stage, uint64_t count, const std::string& where) {
  for (int r = 0; r < world_size_; ++r) Await(r, stage, count, where);
}

std::string RankGroup::Fail(const std::string& text) noexcept {
  Shared& shared = *static_cast<Shared*>(segment_->data());
  uint32_t none = 0;
  if (shared.failed.compare_exchange_strong(none, 1)) {
    std::strncpy(shared.failure, text.c_str(), kFailure - 1);
    shared.failed.store(2);
    for (int r = 0; r < world_size_; ++r) {
      At(r).event.fetch_add(1);
      WakeSleepers(At(r).event);
    }
  }
  // The rank that writes the text may be killed before it is there.
  const uint64_t end = SharedClock() + kGrace;
  while (shared.failed.load() == 1) {
    if (SharedClock() > end) return text;
    Pause();
  }
  return shared.failure;
}

void RankGroup::Throw(const std::string& text) { throw std::runtime_error(Fail(text)); }

void RankGroup::ThrowIfFailed() const {
  const Shared& shared = *static_cast<const Shared*>(segment_->data());
  if (shared.failed.load() == 2) throw std::runtime_error(shared.failure);
}

bool RankGroup::Leave() {
  const auto& shared = *static_cast<const Shared*>(segment_->data());
  At(rank_).left.store(1);
  Wake(At(rank_));
  for (int r = 0; r < world_size_; ++r) {
    Rank& other = At(r);
    while (true) {
      const uint32_t event = other.event.load();
      if (shared.failed.load() != 0) return false;
      if (other.left.load() != 0) break;
      if (!other.process.Lives()) return false;
      other.sleepers.fetch_add(1);
      Sleep(other.event, event);
      other.sleepers.fetch_sub(1);
    }
  }
  return true;
}

void RankGroup::Beat() noexcept { At(rank_).beat.store(SharedClock()); }

}  // namespace singa::distributed
