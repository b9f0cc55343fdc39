#include "distributed/collectives/collectives.h"

#include <algorithm>
#include <vector>

#include "core/tensor/round_up.h"
#include "distributed/collectives/ordered_sum.h"

namespace singa::distributed {
namespace {

/// Chunks of which every rank sums all by itself: two steps less, and the same bits.
constexpr size_t kSmall = size_t{4} << 10;
/// Shares of a chunk start at multiples of this many elements, in lines of the cache of their own.
constexpr size_t kShareUnit = 64;

/// How many chunks a rank writes before it combines one, and before it takes its result.
struct Distances {
  uint64_t combine, take;
};

/// Runs the three stages over `chunks`; each gets the chunk and its number among all of the group.
template <class Write, class Combine, class Take>
void RunStages(RankGroup& group, size_t chunks, Distances distances, const std::string& where,
               const Write& write, const Combine& combine, const Take& take) {
  const uint64_t first = group.count(Stage::kTaken), buffers = group.memory().buffers();
  // A buffer is free again when all ranks of the node have finished with the chunk that was in it.
  const auto await_buffer = [&](Stage stage, uint64_t number) {
    if (number >= buffers) group.AwaitNode(stage, number - buffers + 1, where);
  };
  for (size_t t = 0; t < chunks + distances.take; ++t) {
    if (t < chunks) {
      const uint64_t number = first + t;
      await_buffer(Stage::kCombined, number);
      write(t, number);
      group.Publish(Stage::kWritten, number + 1);
    }
    if (const size_t k = t - distances.combine; t >= distances.combine && k < chunks) {
      const uint64_t number = first + k;
      await_buffer(Stage::kTaken, number);
      combine(k, number);
      group.Publish(Stage::kCombined, number + 1);
    }
    if (t >= distances.take) {
      const size_t k = t - distances.take;
      take(k, first + k);
      group.Publish(Stage::kTaken, first + k + 1);
    }
  }
}

/// Runs two stages: all ranks write chunks, and read those of all. When a rank writes a chunk, all
/// have written the one that it has combined before, and so have combined the one that lies as many
/// chunks before that. The shared buffers together hold the chunks from there on.
template <class Write, class Read>
void ShareChunks(RankGroup& group, size_t chunks, const std::string& where, const Write& write,
                 const Read& read) {
  const uint64_t distance = group.memory().shared_buffers() / 2 - 1;
  RunStages(
      group, chunks, {distance, distance + 1}, where, write,
      [&](size_t k, uint64_t number) {
        group.AwaitAll(Stage::kWritten, number + 1, where);
        read(k, number);
      },
      [](size_t, uint64_t) {});
}

}  // namespace

void AllReduce(RankGroup& group, std::span<const ByteStream> shards, DType dtype, double factor,
               const ByteStream& result, const std::string& where) {
  const Nodes& nodes = group.nodes();
  const NodeMemory& memory = group.memory();
  const int begin_rank = nodes.first(nodes.own()), end_rank = nodes.end(nodes.own());
  const bool first_node = nodes.own() == 0, last_node = nodes.own() + 1 == nodes.count();
  const size_t unit = SizeOf(dtype), sum_unit = SumBytes(dtype), bytes = result.bytes();
  const size_t part =
      memory.chunk_bytes() / std::max(shards.size() * unit, sum_unit) * unit / 64 * 64;
  const auto end = [&](size_t chunk) { return std::min(bytes, (chunk + 1) * part); };
  // Where the first of two nodes has one term, it sends that: 16-bit floats are shorter than sums.
  const bool one_term = nodes.count() == 2 && nodes.first(1) == 1 && shards.size() == 1;
  const bool sends_term = one_term && first_node, adds_term = one_term && last_node;
  const size_t term_unit = one_term ? unit : sum_unit;  // of what goes to the next node
  std::vector<const void*> terms;
  // Adds elements [begin, stop) of this node's ranks to the partial sum. The last node has the
  // result, at `to`.
  const auto sum = [&](uint64_t number, size_t begin, size_t stop, char* to) {
    terms.clear();
    if (adds_term) terms.push_back(memory.Partial(number) + begin * unit);
    for (int r = begin_rank; r < end_rank; ++r)
      for (size_t s = 0; s < shards.size(); ++s)
        terms.push_back(memory.Slot(r, number) + s * part + begin * unit);
    char* partial = memory.Partial(number) + begin * sum_unit;
    AddToSum(dtype, factor, terms.data(), static_cast<int64_t>(terms.size()),
             static_cast<int64_t>(stop - begin), first_node || adds_term ? nullptr : partial,
             partial, last_node ? to + begin * unit : nullptr);
  };
  const bool small = nodes.count() == 1 && bytes <= kSmall;
  alignas(64) char own_sum[kSmall];
  // A neighbour's buffer is free, since this rank has taken the result of the chunk before in it.
  RunStages(
      group, CeilDivide(bytes, part), {1, memory.buffers() - 2}, where,
      [&](size_t k, uint64_t number) {
        if (group.links() && !first_node)
          group.links()->ExpectPartial(number, (end(k) - k * part) / unit * term_unit);
        for (size_t s = 0; s < shards.size(); ++s)
          shards[s].Read(k * part, end(k), memory.Slot(group.rank(), number) + s * part);
      },
      [&](size_t k, uint64_t number) {
        const size_t count = (end(k) - k * part) / unit;
        group.AwaitNode(Stage::kWritten, number + 1, where);
        if (small) {
          sum(number, 0, count, own_sum);
          return;
        }
        if (sends_term) {
          group.links()->SendPartial(number, memory.Slot(group.rank(), number), count * unit,
                                     count * unit);
          return;
        }
        if (!first_node) group.AwaitPartial(number + 1, where);
        const auto ranks = static_cast<size_t>(end_rank - begin_rank);
        const size_t share = RoundUp(CeilDivide(count, ranks), kShareUnit);
        const size_t begin =
            std::min(count, static_cast<size_t>(group.rank() - begin_rank) * share);
        sum(number, begin, std::min(count, begin + share), memory.Result(number));
        if (!group.links()) return;
        if (!last_node) {
          group.links()->SendPartial(number, memory.Partial(number), count * sum_unit,
                                     count * unit);
        } else {
          group.links()->SendResult(number, count * unit);
        }
      },
      [&](size_t k, uint64_t number) {
        if (!last_node) {
          group.AwaitResult(number + 1, where);
        } else if (!small) {
          group.AwaitNode(Stage::kCombined, number + 1, where);
        }
        result.Write(k * part, end(k), small ? own_sum : memory.Result(number));
      });
}

void AllGather(RankGroup& group, const ByteStream& own, const TakeBytes& take,
               const std::string& where) {
  const NodeMemory& memory = group.memory();
  const size_t part = memory.chunk_bytes();
  const auto end = [&](size_t chunk) { return std::min(own.bytes(), (chunk + 1) * part); };
  ShareChunks(
      group, CeilDivide(own.bytes(), part), where,
      [&](size_t k, uint64_t number) {
        own.Read(k * part, end(k), memory.Slot(group.rank(), number));
        if (group.links())
          group.links()->ShareSlots(number, [&](int) { return end(k) - k * part; });
      },
      [&](size_t k, uint64_t number) {
        for (int r = 0; r < group.world_size(); ++r)
          take(r, k * part, end(k), memory.Slot(r, number));
      });
}

void GatherParts(RankGroup& group, std::span<const ByteStream> parts, const std::string& where) {
  const NodeMemory& memory = group.memory();
  const size_t part = memory.chunk_bytes();
  const auto part_of = [&](int rank) -> const ByteStream& {
    return parts[static_cast<size_t>(rank)];
  };
  // Where chunk k of a rank's part begins. A part that is over sends empty chunks, which say that
  // the rank keeps up.
  const auto begin = [&](int rank, size_t k) { return std::min(part_of(rank).bytes(), k * part); };
  size_t longest = 0;
  for (const ByteStream& each : parts) longest = std::max(longest, each.bytes());
  const int own = group.rank();
  ShareChunks(
      group, CeilDivide(longest, part), where,
      [&](size_t k, uint64_t number) {
        part_of(own).Read(begin(own, k), begin(own, k + 1), memory.Slot(own, number));
        if (group.links())
          group.links()->ShareSlots(number,
                                    [&](int rank) { return begin(rank, k + 1) - begin(rank, k); });
      },
      [&](size_t k, uint64_t number) {
        for (int r = 0; r < group.world_size(); ++r)
          if (r != own) part_of(r).Write(begin(r, k), begin(r, k + 1), memory.Slot(r, number));
      });
}

void Broadcast(RankGroup& group, const ByteStream& stream, int root, const std::string& where) {
  std::vector<ByteStream> parts(static_cast<size_t>(group.world_size()));
  parts[static_cast<size_t>(root)] = stream;
  GatherParts(group, parts, where);
}

}  // namespace singa::distributed
