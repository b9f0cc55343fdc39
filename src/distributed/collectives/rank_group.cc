#include "distributed/collectives/rank_group.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

/// A wait tries this often before it sleeps: for some microseconds, or a few hundred.
constexpr int kSpins = 100, kPatientSpins = 5000;
constexpr int kYield = 64;  // tries after which another thread may have the core
constexpr const char* kOp = "Communicator";
constexpr uint64_t kGrace = 300'000'000;  // nanoseconds that a message waits for other ranks
/// Nanoseconds after which this process, rather than the other one, was stopped.
constexpr uint64_t kStall = 500'000'000;
constexpr double kSilent = 1;       // seconds without a beat after which it is told
constexpr double kHandOver = 0.5;   // seconds in which the system may take what is sent
constexpr double kLastWords = 0.2;  // the same for an error
constexpr int kShownAtOnce = 8;     // ranks that a message lists
/// Seconds after which a silent rank is killed: `singa launch` does so at once, and reports it.
constexpr unsigned kAfterLaunchers = 4;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// How long this process has waited, without the time for which it was stopped itself.
class Waiting {
 public:
  double Seconds() {
    const uint64_t now = SharedClock();
    if (now - last_ > kStall) start_ += now - last_;
    last_ = now;
    return static_cast<double>(now - start_) * 1e-9;
  }

 private:
  uint64_t start_ = SharedClock(), last_ = start_;
};

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

RankGroup::RankGroup(const std::string& name, Nodes nodes, double timeout, Meeting meeting)
    : timeout_(timeout), memory_(name, std::move(nodes)) {
  try {
    Check(timeout > 0 && std::isfinite(timeout), kOp, "timeout must be positive, got ", timeout);
    memory_.CheckWorldSize();
    if (own().joined.exchange(1) != 0)
      throw std::invalid_argument(
          detail::Message(kOp, "two processes are rank ", rank(), " of job ", name));
    own().process = Process::Current();
    Beat();
    own().joined.store(2);
    memory_.Wake(own());
    memory_.Post();
    if (meeting.listener || !meeting.before.empty()) {
      // Earlier than the waits end, so that the reason is told.
      const double patience = std::min(timeout, 1e6);
      const uint64_t deadline = SharedClock() + static_cast<uint64_t>(0.9e9 * patience);
      links_ = std::make_unique<NodeLinks>(memory_, std::move(meeting), deadline, patience);
    }
    for (int r = 0; r < world_size(); ++r)
      WaitFor(
          r, [&] { return memory_.At(r).joined.load() == 2; }, WayTo(r), "the start of the job");
    memory_.Joined();
  } catch (const std::exception& error) {
    Fail(error.what());
    memory_.Unlink();
    throw;
  }
}

RankGroup::~RankGroup() {
  own().left.store(1);
  memory_.Wake(own());
  memory_.Post();
}

template <class Ready>
void RankGroup::WaitFor(int rank, const Ready& ready, const Suspects& suspects,
                        const std::string& where) {
  for (int i = 0, end = patient_ ? kPatientSpins : kSpins; i < end; ++i) {
    if (ready()) return;
    Pause();
    if (i % kYield == kYield - 1) sched_yield();
  }
  Waiting waiting;
  RankState& other = memory_.At(rank);
  while (true) {
    const uint32_t event = other.event.load();
    if (ready()) return;
    memory_.AwaitChange(other, event);
    if (ready()) return;
    ThrowIfFailed();
    Beat();
    const double waited = waiting.Seconds();
    const std::string problem = Problem(rank, suspects, where, waited);
    if (problem.empty()) continue;
    if (ready()) return;  // it has ended since, after it was ready
    if (waited >= timeout_) EndSilent();
    Throw(problem);
  }
}

/// The ranks through which this one hears of `rank`, nearest first, and `rank`.
RankGroup::Suspects RankGroup::WayTo(int rank) const {
  return [this, rank](const std::function<void(int)>& visit) {
    const int node = nodes().of(rank);
    if (node != nodes().own()) {
      const int step = node < nodes().own() ? -1 : 1;
      for (int n = nodes().own(); n != node; n += step) visit(nodes().first(n));
      if (rank != nodes().first(node)) visit(nodes().first(node));
    }
    visit(rank);
  };
}

/// The rank that has this node's connections, and all ranks of `node`, a neighbour, and beyond.
RankGroup::Suspects RankGroup::AllOnSide(int node) const {
  return [this, node](const std::function<void(int)>& visit) {
    visit(nodes().first(nodes().own()));
    const int step = node < nodes().own() ? -1 : 1;
    for (int n = node; n >= 0 && n < nodes().count(); n += step)
      for (int r = nodes().first(n); r < nodes().end(n); ++r) visit(r);
  };
}

/// Why `rank` does not answer: a suspect has ended or left, or the deadline is over. Else "".
std::string RankGroup::Problem(int rank, const Suspects& suspects, const std::string& where,
                               double waited) const {
  std::string found;
  const auto note = [&](int r, const std::string& what) {
    if (found.empty())
      found = detail::Message("distributed", "rank ", r, " ", what, "; rank ", this->rank(),
                              " has waited for it for ", Seconds(waited), " in ", where);
  };
  const auto joined = [&](int r) { return memory_.At(r).joined.load() == 2; };
  suspects([&](int r) {
    if (memory_.At(r).left.load() != 0) note(r, "has left the job");
    if (joined(r) && !memory_.Lives(r)) note(r, ProcessOf(r) + "has ended");
  });
  if (waited < timeout_) return found;
  suspects([&](int r) {
    if (!joined(r)) return note(r, "has not joined the job");
    const double silent = memory_.At(r).Silent();
    if (silent > kSilent)
      note(r, ProcessOf(r) + "is stopped: it gave no sign of life for " + Seconds(silent));
  });
  note(rank, rank == this->rank() ? "has work that does not end"
                                  : ProcessOf(rank) + "does something else");
  return found;
}

std::string RankGroup::ProcessOf(int rank) const {
  return "(process " + std::to_string(memory_.At(rank).process.id) + ") ";
}

void RankGroup::CheckOthers(const std::string& where, double waited) {
  ThrowIfFailed();
  const Suspects others = [this](const std::function<void(int)>& visit) {
    for (int r = 0; r < world_size(); ++r)
      if (r != rank()) visit(r);
  };
  const std::string problem = Problem(rank(), others, where, waited);
  if (!problem.empty() && waited >= timeout_) EndSilent();
  if (!problem.empty()) Throw(problem);
}

void RankGroup::Describe(uint64_t number, const std::string& text, uint64_t layouts,
                         uint64_t refused) {
  RankState::Description& description = own().descriptions[number % 2];
  description.hash = std::hash<std::string>()(text);
  description.layouts = layouts;
  description.refused = refused;
  description.length = static_cast<uint32_t>(std::min(text.size(), RankState::kText));
  std::memcpy(description.text, text.data(), description.length);
  own().collective.store(number);
  memory_.Wake(own());
  memory_.Post();
}

RankGroup::Comparison RankGroup::CompareDescriptions(uint64_t number, const std::string& where) {
  const auto launches = [](const RankState::Description& d) {
    return std::string_view(d.text, d.length).starts_with(kLaunch);
  };
  const RankState::Description& mine = own().descriptions[number % 2];
  Comparison found;
  for (int r = 0; r < world_size(); ++r) {
    const RankState& other = memory_.At(r);
    if (other.collective.load() < number) {
      const uint64_t start = SharedClock();
      WaitFor(
          r, [&] { return other.collective.load() >= number; }, WayTo(r), where);
      found.last = r;
      found.waited += static_cast<double>(SharedClock() - start) * 1e-9;
    }
    const RankState::Description& theirs = other.descriptions[number % 2];
    found.same_layouts &= theirs.layouts == mine.layouts;
    found.same_refused &= theirs.refused == mine.refused;
    if (theirs.hash == mine.hash) continue;
    found.mixed |= launches(theirs) != launches(mine);
    if (launches(theirs) == launches(mine))
      Throw(Disagreement(AwaitForMessage(number), number, where));
  }
  return found;
}

void RankGroup::Finish() {
  if (links_) links_->Flush(kHandOver);
}

/// The ranks that have reached collective `number`. Those that are about to get some time for it,
/// so that the message tells of them.
std::vector<int> RankGroup::AwaitForMessage(uint64_t number) const {
  const uint64_t end = SharedClock() + kGrace;
  while (true) {
    std::vector<int> arrived;
    for (int r = 0; r < world_size(); ++r)
      if (memory_.At(r).collective.load() >= number) arrived.push_back(r);
    if (arrived.size() == static_cast<size_t>(world_size()) || SharedClock() > end) return arrived;
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
    const RankState::Description& d = memory_.At(r).descriptions[number % 2];
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
                         RankState::kText, " bytes of its description");
}

uint64_t RankGroup::count(Stage stage) const { return own().count(stage).load(); }

void RankGroup::Publish(Stage stage, uint64_t count) {
  own().count(stage).store(count);
  memory_.Wake(own());
  if (stage != Stage::kTaken) memory_.Post();
}

void RankGroup::AwaitNode(Stage stage, uint64_t count, const std::string& where) {
  for (int r = nodes().first(nodes().own()); r < nodes().end(nodes().own()); ++r)
    WaitFor(
        r, [&] { return memory_.At(r).count(stage).load() >= count; }, WayTo(r), where);
}

void RankGroup::AwaitAll(Stage stage, uint64_t count, const std::string& where) {
  for (int r = 0; r < world_size(); ++r)
    WaitFor(
        r, [&] { return memory_.At(r).count(stage).load() >= count; }, WayTo(r), where);
}

void RankGroup::AwaitPartial(uint64_t count, const std::string& where) {
  AwaitNeighbour(nodes().own() - 1, count, where);
}

void RankGroup::AwaitResult(uint64_t count, const std::string& where) {
  AwaitNeighbour(nodes().own() + 1, count, where);
}

void RankGroup::AwaitNeighbour(int node, uint64_t count, const std::string& where) {
  const int r = nodes().first(node);
  WaitFor(
      r, [&] { return memory_.At(r).count(Stage::kCombined).load() >= count; }, AllOnSide(node),
      where);
}

std::string RankGroup::Fail(const std::string& text) noexcept {
  const std::string decided = memory_.Fail(text);
  if (links_) links_->Flush(kLastWords);  // the process may end now
  return decided;
}

void RankGroup::Throw(const std::string& text) { throw std::runtime_error(Fail(text)); }

void RankGroup::EndSilent() const {
  const int node = nodes().own();
  for (int r = nodes().first(node); r < nodes().end(node); ++r) {
    const RankState& other = memory_.At(r);
    if (r != rank() && other.joined.load() == 2 && other.left.load() == 0 &&
        other.Silent() > kSilent)
      other.process.KillIn(kAfterLaunchers);
  }
}

void RankGroup::ThrowIfFailed() const {
  if (memory_.failure() != NodeMemory::Failure::kNone)
    throw std::runtime_error(memory_.Fail("another rank has failed"));
}

bool RankGroup::Leave() {
  own().left.store(1);
  memory_.Wake(own());
  memory_.Post();
  for (int r = 0; r < world_size(); ++r) {
    RankState& other = memory_.At(r);
    Waiting waiting;
    while (true) {
      const uint32_t event = other.event.load();
      if (memory_.failure() != NodeMemory::Failure::kNone) return false;
      if (other.left.load() != 0) break;
      Beat();
      const bool long_enough = waiting.Seconds() >= timeout_;
      bool lost = false;
      std::string stopped;
      WayTo(r)([&](int suspect) {
        lost |= !memory_.Lives(suspect);
        const double silent = memory_.At(suspect).Silent();
        if (long_enough && silent >= timeout_ && stopped.empty())
          stopped = detail::Message("distributed", "rank ", suspect, " ", ProcessOf(suspect),
                                    "is stopped: it gave no sign of life for ", Seconds(silent),
                                    "; rank ", rank(), " has waited for the end of all ranks");
      });
      // It may have ended after it has left, since this was asked.
      if (lost && other.left.load() != 0) break;
      if (lost) return false;
      if (!stopped.empty()) {
        EndSilent();
        Throw(stopped);
      }
      memory_.AwaitChange(other, event);
    }
  }
  links_.reset();  // tells the others before this process ends
  return true;
}

void RankGroup::Beat() noexcept { own().beat.store(SharedClock()); }

}  // namespace singa::distributed
