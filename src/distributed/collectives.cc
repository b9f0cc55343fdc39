#include "distributed/collectives.h"

#include <algorithm>
#include <vector>

#include "distributed/ordered_sum.h"

namespace singa::distributed {
namespace {

/// Chunks of which every rank sums all by itself: two steps less, and the same bits.
constexpr size_t kSmall = size_t{4} << 10;
/// Shares of a chunk start at multiples of this many elements, in lines of the cache of their own.
constexpr size_t kShareUnit = 64;

size_t Ceil(size_t a, size_t b) { return (a + b - 1) / b; }

/// Runs the three stages over `chunks`; each gets the chunk and its number among all of the group.
template <class Write, class Combine, class Take>
void RunStages(RankGroup& group, size_t chunks, const std::string& where, const Write& write,
               const Combine& combine, const Take& take) {
  const uint64_t first = group.count(Stage::kTaken);
  // A buffer is free again when all ranks have finished with the chunk that was in it.
  const auto await_buffer = [&](Stage stage, uint64_t number) {
    if (number >= RankGroup::kBuffers)
      group.AwaitAll(stage, number - RankGroup::kBuffers + 1, where);
  };
  for (size_t t = 0; t < chunks + 2; ++t) {
    if (t < chunks) {
      const uint64_t number = first + t;
      await_buffer(Stage::kCombined, number);
      write(t, number);
      group.Publish(Stage::kWritten, number + 1);
    }
    if (t >= 1 && t - 1 < chunks) {
      const uint64_t number = first + t - 1;
      group.AwaitAll(Stage::kWritten, number + 1, where);
      await_buffer(Stage::kTaken, number);
      combine(t - 1, number);
      group.Publish(Stage::kCombined, number + 1);
    }
    if (t >= 2) {
      const uint64_t number = first + t - 2;
      take(t - 2, number);
      group.Publish(Stage::kTaken, number + 1);
    }
  }
}

}  // namespace

void AllReduce(RankGroup& group, std::span<const ByteStream> shards, DType dtype, double factor,
               const ByteStream& result, const std::string& where) {
  const size_t unit = SizeOf(dtype), bytes = result.bytes();
  const size_t world = static_cast<size_t>(group.world_size());
  const size_t part = RankGroup::kChunkBytes / (shards.size() * unit) * unit / 64 * 64;
  const auto end = [&](size_t chunk) { return std::min(bytes, (chunk + 1) * part); };
  std::vector<const void*> terms;
  const auto sum = [&](uint64_t number, size_t begin, size_t stop, char* to) {
    terms.clear();
    for (int r = 0; r < group.world_size(); ++r)
      for (size_t s = 0; s < shards.size(); ++s)
        terms.push_back(group.Slot(r, number) + s * part + begin);
    OrderedSum(dtype, factor, terms.data(), static_cast<int64_t>(terms.size()),
               static_cast<int64_t>((stop - begin) / unit), to + begin);
  };
  const bool small = bytes <= kSmall;
  alignas(64) char own_sum[kSmall];
  RunStages(
      group, Ceil(bytes, part), where,
      [&](size_t k, uint64_t number) {
        for (size_t s = 0; s < shards.size(); ++s)
          shards[s].Read(k * part, end(k), group.Slot(group.rank(), number) + s * part);
      },
      [&](size_t k, uint64_t number) {
        const size_t size = end(k) - k * part;
        if (small) {
          sum(number, 0, size, own_sum);
          return;
        }
        const size_t share = Ceil(Ceil(size / unit, world), kShareUnit) * kShareUnit * unit;
        const size_t begin = std::min(size, static_cast<size_t>(group.rank()) * share);
        sum(number, begin, std::min(size, begin + share), group.Result(number));
      },
      [&](size_t k, uint64_t number) {
        if (!small) group.AwaitAll(Stage::kCombined, number + 1, where);
        result.Write(k * part, end(k), small ? own_sum : group.Result(number));
      });
}

void AllGather(RankGroup& group, const ByteStream& own, const TakeBytes& take,
               const std::string& where) {
  constexpr size_t kPart = RankGroup::kChunkBytes;
  const auto end = [&](size_t chunk) { return std::min(own.bytes(), (chunk + 1) * kPart); };
  RunStages(
      group, Ceil(own.bytes(), kPart), where,
      [&](size_t k, uint64_t number) {
        own.Read(k * kPart, end(k), group.Slot(group.rank(), number));
      },
      [&](size_t k, uint64_t number) {
        for (int r = 0; r < group.world_size(); ++r)
          take(r, k * kPart, end(k), group.Slot(r, number));
      },
      [](size_t, uint64_t) {});
}

void Broadcast(RankGroup& group, const ByteStream& stream, int root, const std::string& where) {
  constexpr size_t kPart = RankGroup::kChunkBytes;
  const auto end = [&](size_t chunk) { return std::min(stream.bytes(), (chunk + 1) * kPart); };
  const bool is_root = group.rank() == root;
  RunStages(
      group, Ceil(stream.bytes(), kPart), where,
      [&](size_t k, uint64_t number) {
        if (is_root) stream.Read(k * kPart, end(k), group.Slot(root, number));
      },
      [&](size_t k, uint64_t number) {
        if (!is_root) stream.Write(k * kPart, end(k), group.Slot(root, number));
      },
      [](size_t, uint64_t) {});
}

}  // namespace singa::distributed
