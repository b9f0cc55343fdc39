#pragma once

#include <span>
#include <vector>

#include "core/memory/memory_planner.h"
#include "singa/core/graph.h"

namespace singa {

/// What lies where in the arena while `nodes` run, in the order in which they write it. `first` is
/// the number of the first node in the step. A `lent` block is needed until the last node.
std::vector<ArenaUse> UsesOf(std::span<const Node> nodes, int first, const SegmentMemory& memory,
                             std::span<const BlockPtr> lent);

}  // namespace singa
