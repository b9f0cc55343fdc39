#pragma once

// Collectives over the memory of a node and the connections between nodes. All ranks have described
// the same collective before, so each has finished the one before.
//
// Each runs in chunks, which are written, combined and taken, some chunks apart, so that ranks
// seldom wait for each other, and data that was just written is still in a cache. These distances
// also limit what is on its way between nodes, so that a buffer is free when its data comes.

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "distributed/collectives/byte_stream.h"
#include "distributed/collectives/rank_group.h"
#include "singa/core/dtype.h"

namespace singa::distributed {

/// Writes the ordered sum of all shards to `result`: first those of rank 0, in their order, then
/// those of rank 1, and so on (ordered_sum.h). The shards of all ranks, and `result`, have the same
/// size. `result` may be one of the shards, or lie in the same memory. With gaps where a rank needs
/// no sum this is a reduce-scatter: the last node needs the terms of all others in any case, and
/// sends the sums while it still adds, so the way of a shorter result takes as long.
void AllReduce(RankGroup& group, std::span<const ByteStream> shards, DType dtype, double factor,
               const ByteStream& result, const std::string& where);

/// Gives take(rank, begin, end, data) bytes [begin, end) of the stream of each rank.
using TakeBytes = std::function<void(int, size_t, size_t, const char*)>;
void AllGather(RankGroup& group, const ByteStream& own, const TakeBytes& take,
               const std::string& where);

/// Gives all ranks the part of each: rank r reads parts[r], and writes the others. Parts may differ
/// in size, but a part has one size in all ranks.
void GatherParts(RankGroup& group, std::span<const ByteStream> parts, const std::string& where);

/// Copies the stream of `root` to those of the other ranks.
void Broadcast(RankGroup& group, const ByteStream& stream, int root, const std::string& where);

}  // namespace singa::distributed
