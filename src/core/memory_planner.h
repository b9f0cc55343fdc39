#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "singa/core/graph.h"

namespace singa {

/// Memory that is needed from step `first` to step `last`, both included.
struct Interval {
  size_t bytes;
  int first;
  int last;
  size_t offset = 0;
};

/// Gives each interval an offset (a multiple of `alignment`) so that none overlaps another in time
/// and space; returns the bytes of it all. Greedy: the largest first, each into the smallest gap
/// that holds it (Pisarchyk and Lee 2020, "greedy by size"), or in order of time where that needs
/// less.
size_t PlanOffsets(std::vector<Interval>* intervals, size_t alignment = 64);
/// Likewise, but intervals that share bytes are up to kMostApart steps apart, so that these need
/// not wait for each other: as far as `bytes` are enough for that, or what PlanOffsets needs.
size_t SpreadOffsets(std::vector<Interval>* intervals, size_t alignment, size_t bytes);
inline constexpr int kMostApart = 8;
/// Most bytes that are needed at one step: a lower bound of PlanOffsets.
size_t PeakBytes(std::span<const Interval> intervals, size_t alignment = 64);

/// Plans the arena of `nodes`: their workspaces, and the blocks for which `internal` holds. A
/// `lent` block is needed until after the last node. An output takes over the memory of the input
/// that its plan names, where that input is used for the last time. `spread` bytes may be used to
/// keep apart what shares memory (SpreadOffsets).
SegmentMemory PlanSegment(std::span<const Node> nodes,
                          const std::function<bool(const Block*)>& internal,
                          std::span<const BlockPtr> lent, size_t spread = 0);

}  // namespace singa
