#pragma once

// How chunks of data get from a node to those beside it. Everything else that nodes tell each other
// goes through the connections of link.h, whatever the transport.

#include <cstddef>
#include <cstdint>
#include <functional>

#include "distributed/transport/node_memory.h"

namespace singa::distributed {

/// A chunk on its way between two nodes. All ranks run the same collectives, so both sides know
/// which chunks come, in which order, and their sizes.
struct Chunk {
  enum class Kind : uint32_t {
    kSlot,     ///< a rank's part; goes to all nodes
    kPartial,  ///< the sum over the ranks up to a node; goes to the next one
    kResult,   ///< the sum over all ranks; goes to the node before
  };
  Kind kind = Kind::kSlot;
  int rank = 0;  ///< kSlot: whose part it is; else the first rank of the node that sends it
  uint64_t number = 0;
  size_t bytes = 0;
  char* data = nullptr;  ///< where it is, or will be, in the memory of this node
};

/// Told that a chunk has come from a neighbour.
using Arrived = std::function<void(int node, const Chunk&)>;

/// Whether the ranks of this node have written a chunk that is to be sent, or it is another node's.
bool IsReady(const NodeMemory& memory, const Chunk& chunk);

/// Moves chunks between this node and its neighbours. Calls come from several threads.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Sends a chunk to a neighbour as soon as it is ready. Chunks arrive in the order of the calls.
  virtual void Send(int node, const Chunk& chunk) = 0;
  /// Says that a neighbour sends this chunk next, whose place is free.
  virtual void Expect(int node, const Chunk& chunk) = 0;
  /// Waits until all that there was to send at the call has been handed to the system, at most so
  /// many seconds.
  virtual void Flush(double seconds) = 0;
  /// Waits until no neighbour lacks a chunk, at most so many seconds, and ends.
  virtual void Close(double seconds) noexcept = 0;

  // For transports beside the connections, which tell both sides what has come.

  /// Whether a neighbour may still lack a chunk that is ready.
  virtual bool Owes(int /*node*/) { return false; }
  /// How many chunks of a neighbour have come. Told to it when it changes.
  virtual uint64_t received(int /*node*/) { return 0; }
  /// A neighbour has so many chunks of this node.
  virtual void Acknowledge(int /*node*/, uint64_t /*count*/) {}
};

}  // namespace singa::distributed
