#include "distributed/transport/link.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "singa/core/error.h"

namespace singa::distributed {
namespace {

constexpr uint64_t kBeat = 200'000'000;    // nanoseconds between two signs of life
constexpr uint64_t kReceipt = 20'000'000;  // between two words on chunks that have come
constexpr size_t kLongest = RankState::kText;

/// The connection has ended.
struct Ended {};

bool IsChunk(Topic topic) {
  return topic == Topic::kSlot || topic == Topic::kPartial || topic == Topic::kResult;
}

Chunk::Kind KindOf(Topic topic) {
  return topic == Topic::kSlot      ? Chunk::Kind::kSlot
         : topic == Topic::kPartial ? Chunk::Kind::kPartial
                                    : Chunk::Kind::kResult;
}

Topic TopicOf(Chunk::Kind kind) {
  return kind == Chunk::Kind::kSlot      ? Topic::kSlot
         : kind == Chunk::Kind::kPartial ? Topic::kPartial
                                         : Topic::kResult;
}

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

void Link::Start(Link* next, Transport& transport, Arrived arrived) {
  next_ = next;
  transport_ = &transport;
  arrived_ = std::move(arrived);
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
  if (IsChunk(message.topic)) {
    if (message.bytes > memory_.chunk_bytes()) return false;
    char* to = message.topic == Topic::kSlot      ? memory_.Slot(message.rank, message.number)
               : message.topic == Topic::kPartial ? memory_.Partial(message.number)
                                                  : memory_.Result(message.number);
    if (!socket_->Receive(to, message.bytes)) return false;
    arrived_(node_, {KindOf(message.topic), message.rank, message.number, message.bytes, to});
    return true;
  }
  if (message.bytes > kLongest) return false;
  std::string text(message.bytes, '\0');
  if (!socket_->Receive(text.data(), text.size())) return false;
  const bool for_this_node = message.topic == Topic::kFailure || message.topic == Topic::kReceived;
  if (!for_this_node) PassOn({message, nullptr, text});
  TakeText(message, std::move(text));
  return true;
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
      description.refused = message.refused;
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
    case Topic::kReceived:
      transport_->Acknowledge(node_, message.number);
      return;
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
  if (next_) next_->Queue(std::move(parcel));
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
      bool sent = SendNews(closing);
      sent |= SendQueued();
      if (sent || (!transport_->Owes(node_) && SendGone(gone))) continue;
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

/// Sends what is new in the states of this node's ranks. Returns whether there was anything. Before
/// the end nothing waits for its time.
bool Link::SendNews(bool closing) {
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
      tell({Topic::kDescription, r, number, own.length, own.hash, own.layouts, own.refused},
           own.text);
    }
  }
  if (!ages.empty()) {
    last_beat_ = now;
    tell({.topic = Topic::kBeats, .rank = begin, .bytes = ages.size() * sizeof(uint64_t)},
         ages.data());
  }
  const uint64_t received = transport_->received(node_);
  if (received != told_received_ && (closing || now - last_receipt_ >= kReceipt)) {
    told_received_ = received;
    last_receipt_ = now;
    tell({.topic = Topic::kReceived, .rank = begin, .number = received});
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
    if (queue.empty() || !MayGo(queue.front())) return false;
    parcel = std::move(queue.front());
    queue.pop_front();
  }
  Put(parcel.message, parcel.data ? parcel.data : parcel.text.data());
  return true;
}

bool Link::MayGo(const Parcel& parcel) const {
  const Message& m = parcel.message;
  if (IsChunk(m.topic))
    return IsReady(memory_, {KindOf(m.topic), m.rank, m.number, m.bytes, nullptr});
  const bool last = m.topic == Topic::kLeft || m.topic == Topic::kEnded;
  return !last || !transport_->Owes(node_);  // not before the data of that rank
}

void Link::Put(const Message& message, const void* data) {
  if (!socket_->Send(&message, sizeof(message), data, message.bytes)) throw Ended();
}

void Link::Send(const Chunk& chunk) {
  Queue({{.topic = TopicOf(chunk.kind),
          .rank = chunk.rank,
          .number = chunk.number,
          .bytes = chunk.bytes},
         chunk.data});
}

void Link::Queue(Parcel parcel) {
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

}  // namespace singa::distributed
