#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/branches.h"
#include "core/capture.h"
#include "singa/core/device.h"
#include "singa/core/node.h"

namespace singa {

/// The nodes of a graph, queued with few launches: neighbours are captured and queued as one, in
/// branches where the device wants some. What cannot be captured stays by itself.
class CapturedNodes {
 public:
  /// `capturer` captures what is queued on `device`. The nodes stay where they are; their numbers
  /// may be others at each replay where they are random or `live`.
  CapturedNodes(Device& device, Capturer& capturer, std::span<const Node> nodes);

  /// Starts a replay on memory that lies at `addresses`. True where nodes are captured, or were
  /// before: not in the first replay, nor where memory has moved since the last one (what was
  /// captured is then forgotten), nor while somebody observes the operations.
  bool Start(std::vector<const void*> addresses);
  /// Memory lies where it did at the start.
  bool Unmoved(const std::vector<const void*>& addresses) const { return addresses == addresses_; }
  /// Queues nodes [begin, end), whose workspaces begin so many bytes after `arena`.
  void Queue(size_t begin, size_t end, char* arena, std::span<const size_t> workspaces);

  /// Most branches of what is captured; 0 where nothing is.
  size_t branches() const;
  /// Most nodes that come one after the other.
  size_t longest() const;
  /// Why some nodes stay by themselves, each reason once.
  std::set<std::string> why_alone() const;

 private:
  struct Reorders {
    uint64_t count = 0, bytes = 0;
  };
  struct Captured {
    std::unique_ptr<CapturedWork> work;
    Reorders reorders;  ///< within it
    size_t nodes = 0;
    size_t branches = 1;
    size_t longest = 0;
  };
  using Workspace = std::function<char*(size_t)>;  // of a node
  bool Launch(size_t begin, size_t end, const Workspace& workspace);
  Branches PlanOf(size_t begin, size_t end, const Workspace& workspace) const;

  Device& device_;
  Capturer& capturer_;
  std::span<const Node> nodes_;
  std::vector<std::string> alone_;   // for each node: why it stays by itself; empty: it does not
  std::vector<Reorders> reorders_;   // likewise
  std::map<size_t, Captured> work_;  // by the first node
  std::vector<const void*> addresses_;
};

}  // namespace singa
