#include "distributed/link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr uint64_t kBeat = 200'000'000;  // nanoseconds between two signs of life
constexpr double kLastWords = 0.2;       // seconds for what is left after a failure
constexpr size_t kLongest = RankState::kText;

/// The connection has ended.
struct Ended {};

std::chrono::duration<double> Seconds(double seconds) {
  return std::chrono::duration<double>(seconds);
}

}  // namespace

Link::Link(NodeMemory& memory, int node, Open open)
    : memory_(memory),
      nodes_(memory.nodes()),
      node_(node),
      is_before_(node < nodes_.own()),
      open_(std::move(open)),
      told_(static_cast<size_t>(nodes_.end(nodes_.own()) - nodes_.first(nodes_.own()))),
      gone_(told_.size(), false) {}

Link::~Link() { Close(0); }

void Link::Start(Link* next) {
  next_ = next;
  receiver_ = std::thread([this] { Receive(); });
}

// Receiving.

void Link::Receive() {
  std::string reason;
  std::optional<Socket> opened = open_(stop_, &reason);
  if (opened) {
    socket_ = std::move(opened);
    connected_ = true;
    if (stop_.load()) socket_->Break();
    sender_ = std::thread([this] { SendAll(); });
    while (ReceiveOne()) {
    }
    EndOfNeighbour();
  } else if (!stop_.load()) {
    const int other = nodes_.first(node_), own = nodes_.first(nodes_.own());
    memory_.Fail(detail::Message("Communicator", "rank ", own, " has no connection to rank ", other,
                                 reason.empty() ? "" : ": ", reason));
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    received_all_ = true;
    if (!connected_.load()) sent_all_ = true;
    closing_ = true;  // nobody is there who could be told anything
  }
  changed_.notify_all();
  memory_.Post();
}

/// False at the end of the connection, or for a message that makes no sense.
bool Link::ReceiveOne() {
  Message message;
  if (!socket_->Receive(&message, sizeof(message))) return false;
  if (message.topic >= Topic::kTopics || message.rank < 0 || message.rank >= nodes_.world_size())
    return false;
  if (message.topic == Topic::kSlot || message.topic == Topic::kPartial ||
      message.topic == Topic::kResult) {
    if (message.bytes > memory_.chunk_bytes()) return false;
    char* to = message.topic == Topic::kSlot      ? memory_.Slot(message.rank, message.number)
               : message.topic == Topic::kPartial ? memory_.Partial(message.number)
                                                  : memory_.Result(message.number);
    if (!socket_->Receive(to, message.bytes)) return false;
    if (message.topic != Topic::kPartial) PassOn({message, to});
    TakeData(message);
    return true;
  }
  if (message.bytes > kLongest) return false;
  std::string text(message.bytes, '\0');
  if (!socket_->Receive(text.data(), text.size())) return false;
  if (message.topic != Topic::kFailure) PassOn({message, nullptr, text});
  TakeText(message, std::move(text));
  return true;
}

/// Tells the ranks of this node that data has come.
void Link::TakeData(const Message& message) {
  // A slot is its rank's. The others are the neighbour's, for which its first rank stands.
  const bool slot = message.topic == Topic::kSlot;
  RankState& from = memory_.At(slot ? message.rank : nodes_.first(node_));
  from.count(slot ? Stage::kWritten : Stage::kCombined).store(message.number + 1);
  memory_.Wake(from);
}

void Link::TakeText(const Message& message, std::string text) {
  RankState& from = memory_.At(message.rank);
  switch (message.topic) {
    case Topic::kJoined:
      from.process.id = static_cast<int32_t>(message.number);
      from.beat.store(SharedClock());
      from.joined.store(2);
      break;
    case Topic::kDescription: {
      RankState::Description& description = from.descriptions[message.number % 2];
      description.hash = message.hash;
      description.layouts = message.layouts;
      description.length = static_cast<uint32_t>(text.size());
      std::memcpy(description.text, text.data(), text.size());
      from.collective.store(message.number);
      break;
    }
    case Topic::kBeats: {
      const uint64_t now = SharedClock();
      const size_t count =
          std::min(text.size() / sizeof(uint64_t),
                   static_cast<size_t>(nodes_.end(nodes_.of(message.rank)) - message.rank));
      for (size_t i = 0; i < count; ++i) {
        uint64_t age = 0;
        std::memcpy(&age, text.data() + i * sizeof(age), sizeof(age));
        memory_.At(message.rank + static_cast<int>(i)).beat.store(now - std::min(now, age));
      }
      return;
    }
    case Topic::kLeft:
      from.left.store(1);
      break;
    case Topic::kEnded:
      from.ended.store(1);
      break;
    case Topic::kFailure:
      if (is_before_) {
        memory_.Decide(text);
      } else {
        memory_.Propose(text);
      }
      return;
    default:
      return;
  }
  memory_.Wake(from);
}

void Link::PassOn(Parcel parcel) {
  if (next_) next_->Send(std::move(parcel));
}

/// Unless the neighbour's first rank has said that it leaves, its process is gone.
void Link::EndOfNeighbour() {
  const int rank = nodes_.first(node_);
  RankState& first = memory_.At(rank);
  if (stop_.load() || first.left.load() != 0) return;
  first.ended.store(1);
  memory_.Wake(first);
  PassOn({{.topic = Topic::kEnded, .rank = rank}});
}

// Sending.

void Link::SendAll() {
  try {
    while (true) {
      const uint32_t posted = memory_.posted();
      bool closing = false;
      uint64_t wanted = 0;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        closing = closing_;
        wanted = flush_wanted_;
      }
      const std::vector<bool> gone = Gone();
      bool sent = SendNews();
      sent |= SendQueued();
      if (sent || SendGone(gone)) continue;
      if (closing) break;
      {
        const std::lock_guard<std::mutex> lock(mutex_);
        flushed_ = wanted;
      }
      changed_.notify_all();
      memory_.AwaitPost(posted);
    }
  } catch (const Ended&) {
  }
  socket_->EndSending();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    sent_all_ = true;
  }
  changed_.notify_all();
}

/// Sends what is new in the states of this node's ranks. Returns whether there was anything.
bool Link::SendNews() {
  const int begin = nodes_.first(nodes_.own()), end = nodes_.end(nodes_.own());
  const uint64_t now = SharedClock();
  const bool beats = now - last_beat_ >= kBeat;
  bool sent = false;
  const auto tell = [&](Message message, const void* data = nullptr) {
    Put(message, data);
    sent = true;
  };
  std::vector<uint64_t> ages;
  for (int r = begin; r < end; ++r) {
    RankState& rank = memory_.At(r);
    Told& told = told_[static_cast<size_t>(r - begin)];
    if (rank.joined.load() != 2) break;  // those after it wait, so that beats have no gaps
    if (beats) ages.push_back(now - std::min(now, rank.beat.load()));
    if (!std::exchange(told.joined, true))
      tell({.topic = Topic::kJoined, .rank = r, .number = static_cast<uint64_t>(rank.process.id)});
    // Nobody is in the collective after the next one before all have the description of this one.
    for (const uint64_t last = rank.collective.load(); told.collective < last;) {
      const uint64_t number = ++told.collective;
      const RankState::Description& own = rank.descriptions[number % 2];
      tell({Topic::kDescription, r, number, own.length, own.hash, own.layouts}, own.text);
    }
  }
  if (!ages.empty()) {
    last_beat_ = now;
    tell({.topic = Topic::kBeats, .rank = begin, .bytes = ages.size() * sizeof(uint64_t)},
         ages.data());
  }
  const NodeMemory::Failure wanted =
      is_before_ ? NodeMemory::Failure::kProposed : NodeMemory::Failure::kDecided;
  if (!told_failure_ && memory_.failure() == wanted) {
    told_failure_ = true;
    const std::string text = memory_.failure_text();
    tell({.topic = Topic::kFailure, .rank = begin, .bytes = text.size()}, text.data());
  }
  return sent;
}

/// Which ranks of this node have left, or have ended.
std::vector<bool> Link::Gone() {
  const uint64_t now = SharedClock();
  const bool look = now - last_look_ >= kBeat;
  if (look) last_look_ = now;
  for (size_t i = 0; i < gone_.size(); ++i) {
    const int r = nodes_.first(nodes_.own()) + static_cast<int>(i);
    RankState& rank = memory_.At(r);
    if (rank.left.load() != 0 ||
        (look && r != nodes_.rank() && rank.joined.load() == 2 && !memory_.Lives(r)))
      gone_[i] = true;
  }
  return gone_;
}

/// Tells of these ranks. It comes after the data that they have written, since nobody may think
/// that it is missing.
bool Link::SendGone(const std::vector<bool>& gone) {
  bool sent = false;
  for (size_t i = 0; i < gone.size(); ++i) {
    if (!gone[i] || std::exchange(told_[i].gone, true)) continue;
    const int rank = nodes_.first(nodes_.own()) + static_cast<int>(i);
    const bool left = memory_.At(rank).left.load() != 0;
    Put({.topic = left ? Topic::kLeft : Topic::kEnded, .rank = rank}, nullptr);
    sent = true;
  }
  return sent;
}

/// Sends one parcel, so that there is news between them. Returns whether there was one.
bool Link::SendQueued() {
  Parcel parcel;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::deque<Parcel>& queue = texts_.empty() ? data_ : texts_;
    if (queue.empty() || !IsReady(queue.front())) return false;
    parcel = std::move(queue.front());
    queue.pop_front();
  }
  Put(parcel.message, parcel.data ? parcel.data : parcel.text.data());
  return true;
}

bool Link::IsReady(const Parcel& parcel) const {
  const auto has = [&](int rank, Stage stage) {
    return memory_.At(rank).count(stage).load() > parcel.message.number;
  };
  const int own = nodes_.own();
  const Topic topic = parcel.message.topic;
  if (topic == Topic::kSlot)
    return !nodes_.IsLocal(parcel.message.rank) || has(parcel.message.rank, Stage::kWritten);
  if (topic != Topic::kPartial && (topic != Topic::kResult || own + 1 < nodes_.count()))
    return true;
  for (int r = nodes_.first(own); r < nodes_.end(own); ++r)
    if (!has(r, Stage::kCombined)) return false;
  return true;
}

void Link::Put(const Message& message, const void* data) {
  if (!socket_->Send(&message, sizeof(message), data, message.bytes)) throw Ended();
}

void Link::Send(Parcel parcel) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (sent_all_) return;
    const Topic topic = parcel.message.topic;
    const bool first = topic == Topic::kJoined || topic == Topic::kDescription ||
                       topic == Topic::kBeats;  // may overtake data
    (first ? texts_ : data_).push_back(std::move(parcel));
  }
  memory_.Post();
}

void Link::Flush(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t wanted = ++flush_wanted_;
  memory_.Post();
  changed_.wait_for(lock, Seconds(seconds), [&] { return sent_all_ || flushed_ >= wanted; });
}

void Link::Close(double seconds) noexcept {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    closing_ = true;
    memory_.Post();
    if (connected_.load())
      changed_.wait_for(lock, Seconds(seconds), [&] { return sent_all_ && received_all_; });
  }
  stop_ = true;
  if (connected_.load()) socket_->Break();
  if (receiver_.joinable()) receiver_.join();
  if (sender_.joinable()) sender_.join();
}

// Both connections of a node.

NodeLinks::NodeLinks(NodeMemory& memory, Meeting meeting, uint64_t deadline, double patience)
    : memory_(memory), patience_(patience), meeting_(std::move(meeting)) {
  const int own = memory.nodes().own();
  if (!meeting_.before.empty())
    before_ = std::make_unique<Link>(
        memory, own - 1, [this, own, deadline](const std::atomic<bool>& stop, std::string* reason) {
          return Connect(meeting_.before, meeting_.pass, own, own - 1, deadline, stop, reason);
        });
  if (meeting_.listener)
    after_ = std::make_unique<Link>(
        memory, own + 1, [this, own, deadline](const std::atomic<bool>& stop, std::string*) {
          int found = 0;
          std::optional<Socket> socket = meeting_.listener->Accept(
              meeting_.pass, own, [own](int node) { return node == own + 1; }, &found, deadline,
              stop);
          meeting_.listener.reset();
          return socket;
        });
  if (before_) before_->Start(after_.get());
  if (after_) after_->Start(before_.get());
}

NodeLinks::~NodeLinks() {
  // After a failure the neighbours may be gone or stopped.
  const bool failed = memory_.failure() != NodeMemory::Failure::kNone;
  const double patience = failed ? std::min(patience_, kLastWords) : patience_;
  if (before_) before_->Close(patience);
  if (after_) after_->Close(patience);
}

void NodeLinks::SendSlots(uint64_t number, const std::function<size_t(int)>& bytes) {
  const Nodes& nodes = memory_.nodes();
  for (int r = nodes.first(nodes.own()); r < nodes.end(nodes.own()); ++r)
    for (Link* link : {before_.get(), after_.get()})
      if (link)
        link->Send({{.topic = Topic::kSlot, .rank = r, .number = number, .bytes = bytes(r)},
                    memory_.Slot(r, number)});
}

void NodeLinks::SendPartial(uint64_t number, const char* sum, size_t bytes) {
  after_->Send({{Topic::kPartial, memory_.nodes().rank(), number, bytes}, sum});
}

void NodeLinks::SendResult(uint64_t number, size_t bytes) {
  before_->Send({{Topic::kResult, memory_.nodes().rank(), number, bytes}, memory_.Result(number)});
}

void NodeLinks::Flush(double seconds) {
  if (before_) before_->Flush(seconds);
  if (after_) after_->Flush(seconds);
}

}  // namespace singa::distributed
