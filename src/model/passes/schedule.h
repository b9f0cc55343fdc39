#pragma once

#include <cstddef>
#include <vector>

#include "model/passes/temporaries.h"

namespace singa {

/// How results compare that could be dropped: that one is dropped for which
///     time to compute it again / (its bytes · (nodes until its next use)^patience)
/// is least.
struct DropRule {
  double patience = 0;
  /// The time includes what has been dropped and is computed from it, which would then wait for it.
  bool counts_followers = false;
};

/// The order in which nodes run, some of them a second time, so that temporaries fit into a budget.
struct Schedule {
  struct Run {
    int node = 0;
    bool again = false;
    std::vector<int> kept;  ///< of a second run: the results that later nodes read
  };
  std::vector<Run> runs;
  double time = 0;    ///< EstimatedTime of the second runs
  int blocked = -1;   ///< the node for which there was no room; -1: all have run
  size_t needed = 0;  ///< bytes at that node that cannot be dropped

  bool fits() const { return blocked < 0; }
  /// The nodes in this order. Results of second runs lie in blocks of their own.
  std::vector<Node> Nodes(const Temporaries& temporaries) const;
};

/// Goes through the nodes in their order, and keeps account of the temporaries that are there.
/// Where a node needs more than the budget leaves, results are dropped until it has room. A result
/// that is not there when a node needs it is computed again from what is there then, or can be
/// computed again in turn. A node may run several times. This is the heuristic of Kirisame et al.
/// 2021, "Dynamic tensor rematerialization", for a step whose future is known.
Schedule ScheduleWithin(size_t budget, const Temporaries& temporaries, const DropRule& rule);

}  // namespace singa
