#include "distributed/transport/node_links.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "distributed/transport/mpi_transport.h"
#include "distributed/transport/tcp_transport.h"

namespace singa::distributed {
namespace {

constexpr double kLastWords = 0.2;  // seconds for what is left after a failure

}  // namespace

NodeLinks::NodeLinks(NodeMemory& memory, Meeting meeting, uint64_t deadline, double patience)
    : memory_(memory), nodes_(memory.nodes()), patience_(patience), meeting_(std::move(meeting)) {
  const int own = nodes_.own();
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
  const Arrived arrived = [this](int node, const Chunk& chunk) { Take(node, chunk); };
  if (meeting_.messages) {
    transport_ = std::make_unique<MpiTransport>(memory, std::move(meeting_.messages), arrived);
  } else {
    transport_ = std::make_unique<TcpTransport>(own, before_.get(), after_.get());
  }
  if (before_) before_->Start(after_.get(), *transport_, arrived);
  if (after_) after_->Start(before_.get(), *transport_, arrived);
}

NodeLinks::~NodeLinks() {
  // After a failure the neighbours may be gone or stopped.
  const bool failed = memory_.failure() != NodeMemory::Failure::kNone;
  const double patience = failed ? std::min(patience_, kLastWords) : patience_;
  transport_->Close(patience);
  if (before_) before_->Close(patience);
  if (after_) after_->Close(patience);
}

void NodeLinks::ShareSlots(uint64_t number, const std::function<size_t(int)>& bytes) {
  const int own = nodes_.own();
  for (int r = 0; r < nodes_.world_size(); ++r) {
    const Chunk chunk{Chunk::Kind::kSlot, r, number, bytes(r), memory_.Slot(r, number)};
    if (!nodes_.IsLocal(r)) {
      transport_->Expect(nodes_.of(r) < own ? own - 1 : own + 1, chunk);
    } else {
      if (before_) transport_->Send(own - 1, chunk);
      if (after_) transport_->Send(own + 1, chunk);
    }
  }
}

void NodeLinks::ExpectPartial(uint64_t number, size_t bytes) {
  const int before = nodes_.own() - 1;
  transport_->Expect(before, {Chunk::Kind::kPartial, nodes_.first(before), number, bytes,
                              memory_.Partial(number)});
}

void NodeLinks::SendPartial(uint64_t number, char* sum, size_t bytes, size_t result_bytes) {
  const int after = nodes_.own() + 1, last = nodes_.count() - 1;
  transport_->Expect(after, {Chunk::Kind::kResult, nodes_.first(last), number, result_bytes,
                             memory_.Result(number)});
  transport_->Send(after, {Chunk::Kind::kPartial, nodes_.rank(), number, bytes, sum});
}

void NodeLinks::SendResult(uint64_t number, size_t bytes) {
  transport_->Send(nodes_.own() - 1,
                   {Chunk::Kind::kResult, nodes_.rank(), number, bytes, memory_.Result(number)});
}

void NodeLinks::Flush(double seconds) {
  transport_->Flush(seconds);
  if (before_) before_->Flush(seconds);
  if (after_) after_->Flush(seconds);
}

/// Passes a chunk on, and tells the ranks of this node.
void NodeLinks::Take(int node, const Chunk& chunk) {
  const bool from_before = node < nodes_.own();
  const bool goes_on = from_before ? after_ != nullptr : before_ != nullptr;
  if (chunk.kind != Chunk::Kind::kPartial && goes_on)
    transport_->Send(nodes_.own() + (from_before ? 1 : -1), chunk);
  // A slot is its rank's. The others are the neighbour's, for which its first rank stands.
  const bool slot = chunk.kind == Chunk::Kind::kSlot;
  RankState& from = memory_.At(slot ? chunk.rank : nodes_.first(node));
  from.count(slot ? Stage::kWritten : Stage::kCombined).store(chunk.number + 1);
  memory_.Wake(from);
}

}  // namespace singa::distributed
