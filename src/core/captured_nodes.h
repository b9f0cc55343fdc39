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

/// The nodes of a graph, queued with few launches: neighbours are captured and queued as one. What
/// cannot be captured stays by itself.
class CapturedNodes {
 public:
  /// The nodes stay where they are; their numbers may be others at each replay where they are
  /// random or `live`.
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
  std::span<const Node> nodes_;
  std::vector<bool> alone_;          // for each node
  std::vector<Reorders> reorders_;   // likewise
  std::map<size_t, Captured> work_;  // by the first node
  std::vector<const void*> addresses_;
};

}  // namespace singa
