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

#include "core/graph/capture.h"
#include "core/graph/stream_schedule.h"
#include "singa/core/device.h"
#include "singa/core/node.h"

namespace singa {

/// Queues the nodes of a graph with few launches. Neighbouring nodes are captured together, in
/// branches if the device wants some. Nodes that cannot be captured are queued one by one.
class CapturedNodes {
 public:
  /// `capturer` captures what is queued on `device`. `nodes` have to outlive this object. Numbers
  /// of random and `live` nodes may differ at each replay.
  CapturedNodes(Device& device, Capturer& capturer, std::span<const Node> nodes);

  /// Starts a replay on memory at `addresses`. Returns whether nodes are to be captured, or have
  /// been: not in the first replay, not while operations are observed or one is to be checked, and
  /// not if memory has moved since the last replay. Captured work is then dropped.
  bool Start(std::vector<const void*> addresses);
  /// Whether memory lies where it did at the start.
  bool Unmoved(const std::vector<const void*>& addresses) const { return addresses == addresses_; }
  /// Queues nodes [begin, end). `workspaces` are the offsets of their workspaces in `arena`.
  void Queue(size_t begin, size_t end, char* arena, std::span<const size_t> workspaces);

  /// Largest number of branches in captured work; 0 if nothing is captured.
  size_t branches() const;
  /// Nodes on the longest path, which run one after the other.
  size_t longest() const;
  /// Why nodes are queued one by one, each reason once.
  std::set<std::string> why_alone() const;

 private:
  struct Reorders {
    uint64_t count = 0, bytes = 0;
  };
  /// The nodes of joint plans, as the other processes see them.
  struct Joint {
    const JointPlan* first = nullptr;  ///< null: there are none
    std::string text;
    uint64_t layouts = 0;
    uint64_t agreed = 0;  ///< the agreement in which all have captured them
  };
  struct Captured {
    std::unique_ptr<CapturedWork> work;
    Joint joint;
    Reorders reorders;  ///< among its nodes
    size_t nodes = 0;
    size_t branches = 1;
    size_t longest = 0;
  };
  bool CountRuns();
  Joint JointOf(size_t begin, size_t end) const;
  using Workspace = std::function<char*(size_t)>;  // of a node
  bool Launch(size_t begin, size_t end, const Workspace& workspace);
  StreamSchedule PlanOf(size_t begin, size_t end, const Workspace& workspace) const;

  Device& device_;
  Capturer& capturer_;
  std::span<const Node> nodes_;
  std::vector<std::string> alone_;   // for each node: why it is queued by itself; empty: it is not
  std::vector<Reorders> reorders_;   // for each node
  std::map<size_t, Captured> work_;  // by the first node
  std::vector<const void*> addresses_;
  // Some plans of the nodes are. Ranks launch together, so what they launch is not looked at.
  bool are_watched_ = true;
};

}  // namespace singa
