// A radix sort by digits of 8 bits, lowest first, with three steps per digit: each block counts the
// digits of its tile, one block computes where each count begins, and each block moves its tile
// there, stably.

#include "backend/cuda/kernels/radix_sort.h"

#include <bit>
#include <utility>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/join.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kDigits = 256;  // one per thread of a block
constexpr int kDigitBits = 8;
constexpr int64_t kTile = 2048;  // keys per block
static_assert(kDigits == kThreads);

__device__ __forceinline__ int DigitOf(int64_t key, int shift) {
  return static_cast<int>(key >> shift & (kDigits - 1));
}

/// counts[digit · blocks + block]: how often each digit occurs in the block's tile.
__global__ void __launch_bounds__(kThreads)
    CountDigits(const int64_t* keys, int64_t count, int shift, int64_t* counts) {
  SINGA_SHARED(unsigned, kDigits, found);
  found[threadIdx.x] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < count ? begin + kTile : count;
  for (int64_t k = begin + threadIdx.x; k < end; k += kThreads)
    atomicAdd(&found[DigitOf(keys[k], shift)], 1u);
  __syncthreads();
  counts[int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = found[threadIdx.x];
}

/// Replaces each count by the sum of all counts before it. One block.
__global__ void __launch_bounds__(kThreads) SumBefore(int64_t* counts, int64_t length) {
  constexpr int kEach = 16;  // counts per thread
  constexpr unsigned kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(int64_t, kWarps, of_warp);
  const unsigned lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  int64_t before = 0;
  for (int64_t first = 0; first < length; first += int64_t{kThreads} * kEach) {
    const int64_t begin = first + int64_t{threadIdx.x} * kEach;
    int64_t own[kEach], sum = 0;
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      own[j] = begin + j < length ? counts[begin + j] : 0;
      sum += own[j];
    }
    int64_t through = sum;  // sum of the warp's threads up to this one
#pragma unroll
    for (unsigned distance = 1; distance < kWarpThreads; distance *= 2) {
      const int64_t other = __shfl_up_sync(kAllLanes, through, distance);
      if (lane >= distance) through += other;
    }
    if (lane == kWarpThreads - 1) of_warp[warp] = through;
    __syncthreads();
    int64_t at = before + through - sum;
    for (unsigned w = 0; w < kWarps; ++w) {
      if (w < warp) at += of_warp[w];
      before += of_warp[w];
    }
#pragma unroll
    for (int j = 0; j < kEach; ++j) {
      if (begin + j < length) counts[begin + j] = at;
      at += own[j];
    }
    __syncthreads();  // all threads have read of_warp
  }
}

/// Moves the elements of each tile to where their digits begin. Equal digits keep their order.
__global__ void __launch_bounds__(kThreads)
    MoveDigits(const int64_t* keys, const int64_t* values, int64_t count, int shift,
               const int64_t* begins, int64_t* sorted_keys, int64_t* sorted_values) {
  constexpr int kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(int64_t, kDigits, next);         // next position of each digit
  SINGA_SHARED(int, kWarps* kDigits, of_warp);  // count of each digit in this piece, per warp
  const unsigned thread = threadIdx.x, lane = thread % kWarpThreads, warp = thread / kWarpThreads;
  next[thread] = begins[int64_t{thread} * gridDim.x + blockIdx.x];
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < count ? begin + kTile : count;
  for (int64_t first = begin; first < end; first += kThreads) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) of_warp[w * kDigits + thread] = 0;
    __syncthreads();
    const int64_t k = first + thread;
    const bool exists = k < end;
    const int64_t key = exists ? keys[k] : 0;
    const auto digit = static_cast<unsigned>(DigitOf(key, shift));
    unsigned same = __ballot_sync(kAllLanes, exists);  // the warp's lanes with this digit
#pragma unroll
    for (int bit = 0; bit < kDigitBits; ++bit) {
      const bool set = digit >> bit & 1;
      const unsigned votes = __ballot_sync(kAllLanes, set);
      same &= set ? votes : ~votes;
    }
    const int before = __popc(same & ((1u << lane) - 1));
    if (exists && before == 0) of_warp[warp * kDigits + digit] = __popc(same);
    __syncthreads();
    if (exists) {
      int64_t at = next[digit] + before;
      for (unsigned w = 0; w < warp; ++w) at += of_warp[w * kDigits + digit];
      sorted_keys[at] = key;
      sorted_values[at] = values[k];
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) next[thread] += of_warp[w * kDigits + thread];
  }
}

/// begins[row]: the position of the first sorted key that is not below `row`; length + 1 entries.
__global__ void __launch_bounds__(kThreads)
    FindBegins(const int64_t* sorted_keys, int64_t count, int64_t length, int64_t* begins) {
  for (int64_t row = FirstElement(); row <= length; row += ElementStep()) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sorted_keys[middle] < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins[row] = low;
  }
}

/// Lists the picks in their order, with the row of each.
__global__ void __launch_bounds__(kThreads)
    ReadPicks(Indices indices, int64_t* rows, int64_t* picks) {
  for (int64_t k = FirstElement(); k < indices.count; k += ElementStep()) {
    rows[k] = indices.At(k);
    picks[k] = k;
  }
}

int64_t Tiles(int64_t count) { return (count + kTile - 1) / kTile; }

}  // namespace

RadixSort::RadixSort(int64_t count, void* workspace)
    : count(count),
      keys(static_cast<int64_t*>(workspace)),
      values(keys + count),
      other_keys_(values + count),
      other_values_(other_keys_ + count),
      counts_(other_values_ + count) {}

size_t RadixSort::Bytes(int64_t count) {
  return static_cast<size_t>(4 * count + Tiles(count) * kDigits) * sizeof(int64_t);
}

void RadixSort::Queue(int bits, Stream stream) {
  const auto blocks = static_cast<unsigned>(Tiles(count));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    Launch(CountDigits, blocks, kThreads, stream, keys, count, shift, counts_);
    Launch(SumBefore, blocks > 0 ? 1 : 0, kThreads, stream, counts_, int64_t{blocks} * kDigits);
    Launch(MoveDigits, blocks, kThreads, stream, keys, values, count, shift, counts_, other_keys_,
           other_values_);
    std::swap(keys, other_keys_);
    std::swap(values, other_values_);
  }
}

size_t GroupsWorkspace(int64_t count, int64_t rows) {
  return RadixSort::Bytes(count) + static_cast<size_t>(rows + 1) * sizeof(int64_t);
}

PickGroups QueueGroups(const Indices& indices, int64_t rows, void* workspace, Stream stream) {
  auto* begins = static_cast<int64_t*>(workspace);
  RadixSort sort(indices.count, begins + rows + 1);
  LaunchIndependent(ReadPicks, GridFor(indices.count, kThreads), kThreads, stream, indices,
                    sort.keys, sort.values);
  sort.Queue(std::bit_width(static_cast<uint64_t>(rows - 1)), stream);
  LaunchIndependent(FindBegins, GridFor(rows + 1, kThreads), kThreads, stream, sort.keys,
                    sort.count, rows, begins);
  return {sort.values, begins};
}

}  // namespace singa::cuda
