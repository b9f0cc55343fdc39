#pragma once

// Collectives of the ranks of one machine, over the slots of a RankGroup. All ranks have described
// the same collective before.
//
// Each runs in chunks. Writing chunk k, combining chunk k − 1 and taking chunk k − 2 take turns, so
// that ranks seldom wait for each other, and data that was just written is still in a cache.

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "distributed/byte_stream.h"
#include "distributed/rank_group.h"
#include "singa/core/dtype.h"

namespace singa::distributed {

/// Writes the ordered sum of all shards to `result`: first those of rank 0, in their order, then
/// those of rank 1, and so on (ordered_sum.h). The shards of all ranks, and `result`, have the same
/// size. `result` may be one of the shards.
void AllReduce(RankGroup& group, std::span<const ByteStream> shards, DType dtype, double factor,
               const ByteStream& result, const std::string& where);

/// Gives take(rank, begin, end, data) bytes [begin, end) of the stream of each rank.
using TakeBytes = std::function<void(int, size_t, size_t, const char*)>;
void AllGather(RankGroup& group, const ByteStream& own, const TakeBytes& take,
               const std::string& where);

/// Copies the stream of `root` to those of the other ranks.
void Broadcast(RankGroup& group, const ByteStream& stream, int root, const std::string& where);

}  // namespace singa::distributed
