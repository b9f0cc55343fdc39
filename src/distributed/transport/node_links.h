#pragma once

// How a node reaches the others. Nodes form a chain: each is connected to the one before it and the
// one after it. The process of a node's first rank has the connections, and hands chunks to the
// transport.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "distributed/meeting/meeting.h"
#include "distributed/transport/link.h"
#include "distributed/transport/transport.h"

namespace singa::distributed {

class NodeLinks {
 public:
  /// Connects until `deadline` (SharedClock), in threads. `patience` is the most seconds that the
  /// neighbours get at the end for what is on its way to them.
  NodeLinks(NodeMemory& memory, Meeting meeting, uint64_t deadline, double patience);
  ~NodeLinks();

  /// Gives all nodes the part of chunk `number` of each rank, when it is written. bytes(rank) is
  /// its size. The places of other nodes' ranks are free.
  void ShareSlots(uint64_t number, const std::function<size_t(int)>& bytes);
  /// The partial sum of chunk `number` comes from the node before, to a place that is free.
  void ExpectPartial(uint64_t number, size_t bytes);
  /// Sends the partial sum of chunk `number` to the next node, when all shares are there. The
  /// result comes back, to a place that is free.
  void SendPartial(uint64_t number, char* sum, size_t bytes, size_t result_bytes);
  /// On the last node: sends the result of chunk `number` to all nodes, when all shares are there.
  void SendResult(uint64_t number, size_t bytes);
  /// Waits until all that there was to send at the call has been handed to the system, at most so
  /// many seconds.
  void Flush(double seconds);

 private:
  void Take(int node, const Chunk& chunk);

  NodeMemory& memory_;
  const Nodes& nodes_;
  double patience_;
  Meeting meeting_;
  std::unique_ptr<Link> before_, after_;
  std::unique_ptr<Transport> transport_;
};

}  // namespace singa::distributed
