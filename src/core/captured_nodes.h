#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/capture.h"
#include "singa/core/node.h"

namespace singa {

/// The nodes of a graph, queued with few launches: neighbours whose numbers are the same at each
/// replay are captured and queued as one. Nodes with numbers of each step (a learning rate, random
/// positions) stay by themselves, since captured work repeats its arguments.
class CapturedNodes {
 public:
  CapturedNodes(Capturer& capturer, std::span<const Node> nodes);

  /// Starts a replay on memory that lies at `addresses`. True where nodes are captured, or were
  /// before: not in the first replay, nor where memory has moved since the last one (what was
  /// captured is then forgotten), nor while somebody observes the operations.
  bool Start(std::vector<const void*> addresses);
  /// Memory lies where it did at the start.
  bool Unmoved(const std::vector<const void*>& addresses) const { return addresses == addresses_; }
  /// Queues nodes [begin, end); queue(i) queues node i.
  void Queue(size_t begin, size_t end, const std::function<void(size_t)>& queue);

 private:
  struct Reorders {
    uint64_t count = 0, bytes = 0;
  };
  struct Captured {
    std::unique_ptr<CapturedWork> work;
    Reorders reorders;  ///< within it
  };
  bool Launch(size_t begin, size_t end, const std::function<void(size_t)>& queue);

  Capturer& capturer_;
  std::vector<bool> alone_;          // for each node
  std::vector<Reorders> reorders_;   // likewise
  std::map<size_t, Captured> work_;  // by the first node
  std::vector<const void*> addresses_;
};

}  // namespace singa
