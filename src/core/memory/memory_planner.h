#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "singa/core/node.h"

namespace singa {

/// Memory that is needed from step `first` to step `last`, both inclusive.
struct Interval {
  size_t bytes;
  int first;
  int last;
  size_t offset = 0;
};

/// Gives each interval an offset, a multiple of `alignment`, so that intervals of the same time do
/// not overlap. Returns the bytes that all of them need. Places the largest interval first, each
/// into the smallest gap that holds it (Pisarchyk and Lee 2020, "greedy by size"). Places them in
/// order of time instead if that needs less.
size_t PlanOffsets(std::vector<Interval>* intervals, size_t alignment = 64);
/// The same, but keeps intervals that share bytes up to kMostApart steps apart, so that these steps
/// need not wait for each other. Uses no more than `bytes` for that, or than PlanOffsets needs.
size_t SpreadOffsets(std::vector<Interval>* intervals, size_t alignment, size_t bytes);
inline constexpr int kMostApart = 8;
/// The most bytes that one step needs: a lower bound of PlanOffsets.
size_t PeakBytes(std::span<const Interval> intervals, size_t alignment = 64);

/// The bytes that memory of this size takes in an arena.
size_t PlannedBytes(size_t bytes, size_t alignment);
/// The input of `node` whose memory output `i` may take over if no later node needs the input; null
/// if there is none.
const Tensor* TakenOver(const Node& node, size_t i);

/// Where the temporaries of some nodes lie in an arena.
struct SegmentMemory {
  struct Place {
    BlockPtr block;
    size_t offset;
  };
  std::vector<Place> blocks;
  std::vector<size_t> workspaces;  ///< offset for each node
  size_t bytes = 0;                ///< of the arena
  size_t peak = 0;                 ///< most bytes that are live at once: a lower bound of `bytes`
  int in_place = 0;                ///< outputs that take over the memory of an input
};

/// Plans the arena of `nodes`: their workspaces, and the blocks that are `internal`. A `lent` block
/// is needed until after the last node. An output takes over the memory of the input that its plan
/// names, if nothing uses that input later. Up to `spread` bytes keep apart what shares memory
/// (SpreadOffsets).
SegmentMemory PlanSegment(std::span<const Node> nodes,
                          const std::function<bool(const Block*)>& internal,
                          std::span<const BlockPtr> lent, size_t spread = 0);

}  // namespace singa
