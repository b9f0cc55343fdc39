#include "distributed/transport/mpi_transport.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

// Nanoseconds. MPI has no call that waits for messages and for ranks of this machine at once, so
// the thread asks again and again: at first without a break, since chunks follow each other
// closely.
// Later it sleeps for a part of the time that it has waited.
constexpr uint64_t kSpin = 30'000, kSleepOfWait = 8;
constexpr int64_t kShortestSleep = 20'000, kLongestSleep = 500'000;
constexpr unsigned long kTimerSlack = 1'000;
/// Seconds in which a rank's end, the likely cause of an error of MPI, becomes known otherwise.
constexpr auto kGrace = std::chrono::seconds(1);
constexpr auto kLook = std::chrono::milliseconds(10);
/// Seconds in which the thread may come back from a call of MPI after a failure.
constexpr double kReturn = 0.5;

/// The object is gone.
struct Gone {};

/// Messages between two ranks differ by their tags. All MPIs have those up to 32767.
int TagOf(const Chunk& chunk) {
  return chunk.kind == Chunk::Kind::kPartial  ? 0
         : chunk.kind == Chunk::Kind::kResult ? 1
                                              : 2 + chunk.rank;
}

}  // namespace

MpiTransport::MpiTransport(NodeMemory& memory, std::unique_ptr<Messages> messages, Arrived arrived)
    : memory_(memory), messages_(std::move(messages)), arrived_(std::move(arrived)) {
  const Nodes& nodes = memory.nodes();
  const int own = nodes.own();
  if (own > 0) sides_[0] = {.node = own - 1, .rank = nodes.first(own - 1)};
  if (own + 1 < nodes.count()) sides_[1] = {.node = own + 1, .rank = nodes.first(own + 1)};
  thread_ = std::thread([this, gate = gate_] {
    try {
      Run(*gate);
    } catch (const Gone&) {
    }
  });
}

MpiTransport::~MpiTransport() { Close(0); }

// Calls of other threads.

void MpiTransport::Send(int node, const Chunk& chunk) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    At(node).to_send.push_back(chunk);
  }
  memory_.Post();
}

void MpiTransport::Expect(int node, const Chunk& chunk) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    At(node).expected.push_back({chunk});
  }
  memory_.Post();
}

bool MpiTransport::HasToSend(const Side& side) const {
  return !side.to_send.empty() && IsReady(memory_, side.to_send.front());
}

void MpiTransport::Flush(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return ended_ || std::none_of(sides_.begin(), sides_.end(), [&](const Side& side) {
             return HasToSend(side) || side.sending > 0;
           });
  });
}

bool MpiTransport::Owes(int node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const Side& side = At(node);
  return !ended_ && (HasToSend(side) || side.acknowledged < side.sent);
}

uint64_t MpiTransport::received(int node) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return At(node).received;
}

void MpiTransport::Acknowledge(int node, uint64_t count) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    At(node).acknowledged = count;
  }
  changed_.notify_all();
  memory_.Post();
}

void MpiTransport::Close(double seconds) noexcept {
  if (!thread_.joinable()) return;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] {
    return ended_ || std::none_of(sides_.begin(), sides_.end(), [&](const Side& side) {
             return HasToSend(side) || side.acknowledged < side.sent;
           });
  });
  stop_ = true;
  changed_.notify_all();
  memory_.Post();
  // In a good job it comes back, however busy the machine is, and nobody else may call MPI before.
  const auto most = std::chrono::duration<double>(std::max(seconds, kReturn));
  const bool ended = changed_.wait_for(lock, most, [&] { return ended_; });
  lock.unlock();
  if (ended) return thread_.join();
  const std::lock_guard<std::mutex> closing(gate_->mutex);
  gate_->closed = true;
  thread_.detach();
  (void)messages_.release();  // the thread is in one of its calls
}

// The thread.

/// Calls MPI. This object may be gone when the call returns.
template <class Call>
void MpiTransport::Ask(Gate& gate, const Call& call) {
  std::exception_ptr error;
  try {
    call(*messages_);
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard<std::mutex> lock(gate.mutex);
  if (gate.closed) throw Gone();
  if (error) std::rethrow_exception(error);
}

void MpiTransport::Run(Gate& gate) {
  prctl(PR_SET_TIMERSLACK, kTimerSlack, 0, 0, 0);
  std::string problem;
  try {
    uint64_t last = SharedClock();
    while (true) {
      const uint32_t posted = memory_.posted();
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (stop_) break;
      }
      if (memory_.failure() != NodeMemory::Failure::kNone) break;
      bool moved = StartAll(gate);
      const bool idle = IsIdle();
      if (!idle) moved |= TakeFinished(gate);
      const uint64_t now = SharedClock();
      if (moved) {
        last = now;
      } else if (idle) {
        memory_.AwaitPost(posted);
      } else if (now - last < kSpin) {
        sched_yield();
      } else {
        const auto sleep = static_cast<int64_t>((now - last) / kSleepOfWait);
        memory_.AwaitPost(posted, std::clamp(sleep, kShortestSleep, kLongestSleep));
      }
    }
  } catch (const std::exception& error) {
    problem = error.what();
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (!problem.empty()) ReportError(problem);
}

/// Gives MPI what there is to send and to receive. Returns whether there was anything.
bool MpiTransport::StartAll(Gate& gate) {
  std::vector<Started> found;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Side& side : sides_) {
      for (; side.receiving < side.expected.size(); ++side.receiving) {
        Incoming& next = side.expected[side.receiving];
        // What was in this place before has been passed on, but MPI may not have said so.
        const bool used = std::any_of(started_.begin(), started_.end(), [&](const auto& entry) {
          return entry.second.chunk.data == next.chunk.data;
        });
        if (used) break;
        found.push_back({&side, &next, next.chunk});
      }
      for (; HasToSend(side); side.to_send.pop_front()) {
        found.push_back({&side, nullptr, side.to_send.front()});
        ++side.sending;
        ++side.sent;
      }
    }
  }
  for (Started& each : found) {
    const Chunk& chunk = each.chunk;
    const Messages::Id id = next_id_++;
    started_.emplace(id, each);
    Ask(gate, [&, rank = each.side->rank](Messages& messages) {
      if (each.incoming) {
        messages.Receive(id, chunk.data, chunk.bytes, rank, TagOf(chunk));
      } else {
        messages.Send(id, chunk.data, chunk.bytes, rank, TagOf(chunk));
      }
    });
  }
  return !found.empty();
}

/// Asks MPI what has finished. Returns whether there was anything.
bool MpiTransport::TakeFinished(Gate& gate) {
  std::vector<Messages::Id> finished;
  Ask(gate, [&](Messages& messages) { finished = messages.Progress(); });
  std::vector<std::pair<Side*, Chunk>> here;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Messages::Id id : finished) {
      const auto entry = started_.find(id);
      if (entry->second.incoming) {
        entry->second.incoming->here = true;
      } else {
        --entry->second.side->sending;
      }
      started_.erase(entry);
    }
    for (Side& side : sides_)
      for (; !side.expected.empty() && side.expected.front().here; --side.receiving) {
        here.emplace_back(&side, side.expected.front().chunk);
        side.expected.pop_front();
      }
  }
  for (const auto& [side, chunk] : here) {
    arrived_(side->node, chunk);
    // Not before: what the neighbour tells when it knows this must find the chunk.
    const std::lock_guard<std::mutex> lock(mutex_);
    ++side->received;
  }
  changed_.notify_all();
  return !finished.empty();
}

/// Whether nothing is on its way.
bool MpiTransport::IsIdle() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return started_.empty() && std::all_of(sides_.begin(), sides_.end(), [](const Side& side) {
           return side.acknowledged >= side.sent;
         });
}

/// Unless the job fails for another reason meanwhile, MPI's error is the reason.
void MpiTransport::ReportError(const std::string& text) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto end = std::chrono::steady_clock::now() + kGrace;
  while (!stop_ && memory_.failure() == NodeMemory::Failure::kNone) {
    if (std::chrono::steady_clock::now() > end) {
      memory_.Propose(detail::Message("Communicator", "rank ", memory_.nodes().rank(), ": ", text));
      return;
    }
    changed_.wait_for(lock, kLook);
  }
}

}  // namespace singa::distributed
