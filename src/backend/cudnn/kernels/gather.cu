// Rows picked by number, and rows added up by number: Gather and Embedding.
//
// Backward sorts the picks by row, those of a row in their order, and then gives each element of dx
// to a thread: the sums have one order, which atomic additions would not. The sort goes by digits
// of 8 bits, the last one first, each time in three steps: every block counts the digits of its
// tile, one block adds up where each count begins, and every block moves its tile there, in order.

#include <array>
#include <bit>
#include <utility>

#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/join.h"
#include "backend/cudnn/kernels/positions.h"
#include "backend/cudnn/kernels/register.h"
#include "model/operation/gather_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kDigits = 256;  // as many as a block has threads
constexpr int kDigitBits = 8;
constexpr int64_t kTile = 2048;  // picks of one block of the sort
static_assert(kDigits == kThreads);

/// Axes [from, to) of a shape; array 0 has the dense strides, array 1 `given`.
StridedSpace<2> AxesBetween(const Shape& shape, const Strides& given, int from, int to) {
  Shape part;
  Strides strides;
  for (int axis = from; axis < to; ++axis) {
    part.push_back(shape[axis]);
    strides.push_back(given[axis]);
  }
  return {part, {ContiguousStrides(part), strides}};
}

template <class Spec>
Indices IndicesOf(const Spec& spec, const Tensor& indices) {
  return {indices.raw_data(),
          indices.data_type(),
          spec.count,
          spec.x_shape[spec.axis],
          spec.kind == GatherKind::kGather,
          FaultOf(spec.op())};
}

/// y (outer, count, width), by the size of elements, or several at once.
template <class U, class Index>
__global__ void __launch_bounds__(kThreads)
    Gather(const U* x, Indices indices, Strided<2, Index> outer, Strided<2, Index> inner,
           DivisorOf<Index> width, DivisorOf<Index> count, int64_t step, U* y, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const Index row = width.Divide(static_cast<Index>(i)), line = count.Divide(row);
    y[i] = x[outer.Locate(line).at[1] + indices.At(row - line * count.value()) * step +
             inner.Locate(static_cast<Index>(i) - row * width.value()).at[1]];
  }
}

/// The same places in x, of which `ratio` elements are one.
StridedSpace<2> InWords(const StridedSpace<2>& space, int64_t ratio) {
  Shape shape;
  std::array<Strides, 2> strides;
  for (int axis = 0; axis < space.rank(); ++axis) {
    shape.push_back(space.length(axis));
    strides[0].push_back(space.stride(0, axis));
    strides[1].push_back(space.stride(1, axis) / ratio);
  }
  return {shape, strides};
}

void RunGather(const GatherSpec& spec, const Execution& execution) {
  const Tensor& x = execution.inputs[0];
  const Tensor& y = execution.outputs[0];
  const Stream stream = StreamOf(execution.device);
  const Indices indices = IndicesOf(spec, execution.inputs[1]);
  if (y.size() == 0 || x.size() == 0) return CheckIndices(indices, stream);
  const StridedSpace<2> outer = AxesBetween(spec.x_shape, x.strides(), 0, spec.axis);
  const StridedSpace<2> inner =
      AxesBetween(spec.x_shape, x.strides(), spec.axis + 1, spec.x_shape.rank());
  const int64_t step = x.strides()[spec.axis];
  // Rows without gaps in words of 16 bytes, where they begin at multiples of that.
  const auto ratio = static_cast<int64_t>(sizeof(uint4) / SizeOf(spec.dtype));
  bool wide = inner.dense(1) && inner.size() % ratio == 0 && step % ratio == 0 &&
              IsAligned(x.raw_data()) && IsAligned(y.raw_data());
  for (int axis = 0; axis < outer.rank(); ++axis) wide = wide && outer.stride(1, axis) % ratio == 0;
  const auto launch = [&]<class U>(const StridedSpace<2>& lines, const StridedSpace<2>& row,
                                   int64_t row_step) {
    const int64_t size = row.size() * spec.count * lines.size();
    const auto queue = [&]<class Index>(Index) {
      LaunchIndependent(Gather<U, Index>, GridFor(size, kThreads), kThreads, stream,
                        static_cast<const U*>(x.raw_data()), indices, Strided<2, Index>(lines),
                        Strided<2, Index>(row), DivisorOf<Index>(row.size()),
                        DivisorOf<Index>(spec.count), row_step, static_cast<U*>(y.raw_data()),
                        size);
    };
    FitsIndex32(size) ? queue(uint32_t{}) : queue(int64_t{});
  };
  if (wide) {
    const StridedSpace<2> row({inner.size() / ratio}, {Strides{1}, Strides{1}});
    return launch.template operator()<uint4>(InWords(outer, ratio), row, step / ratio);
  }
  SwitchSize(SizeOf(spec.dtype),
             [&]<class U>() { launch.template operator()<U>(outer, inner, step); });
}

// ---- backward

/// The picks in their order, and the row of each.
__global__ void __launch_bounds__(kThreads)
    ReadPicks(Indices indices, int64_t* rows, int64_t* picks) {
  for (int64_t k = FirstElement(); k < indices.count; k += ElementStep()) {
    rows[k] = indices.At(k);
    picks[k] = k;
  }
}

__device__ __forceinline__ int DigitOf(int64_t row, int shift) {
  return static_cast<int>(row >> shift & (kDigits - 1));
}

/// counts[digit · blocks + block]: how often each digit is in the block's tile.
__global__ void __launch_bounds__(kThreads)
    CountDigits(const int64_t* rows, int64_t count, int shift, int64_t* counts) {
  SINGA_SHARED(unsigned, kDigits, found);
  found[threadIdx.x] = 0;
  __syncthreads();
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < count ? begin + kTile : count;
  for (int64_t k = begin + threadIdx.x; k < end; k += kThreads)
    atomicAdd(&found[DigitOf(rows[k], shift)], 1u);
  __syncthreads();
  counts[int64_t{threadIdx.x} * gridDim.x + blockIdx.x] = found[threadIdx.x];
}

/// The sums of all counts before each one, in place; one block.
__global__ void __launch_bounds__(kThreads) SumBefore(int64_t* counts, int64_t length) {
  constexpr int kEach = 16;  // neighbours of a thread
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
    int64_t through = sum;  // of all threads of the warp up to this one
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
    __syncthreads();  // of_warp has been read
  }
}

/// Moves each tile to where its digits begin, equal ones in their order.
__global__ void __launch_bounds__(kThreads)
    MoveDigits(const int64_t* rows, const int64_t* picks, int64_t count, int shift,
               const int64_t* begins, int64_t* sorted_rows, int64_t* sorted_picks) {
  constexpr int kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(int64_t, kDigits, next);         // where each digit goes on
  SINGA_SHARED(int, kWarps* kDigits, of_warp);  // how many of each a warp has in this piece
  const unsigned thread = threadIdx.x, lane = thread % kWarpThreads, warp = thread / kWarpThreads;
  next[thread] = begins[int64_t{thread} * gridDim.x + blockIdx.x];
  const int64_t begin = blockIdx.x * kTile, end = begin + kTile < count ? begin + kTile : count;
  for (int64_t first = begin; first < end; first += kThreads) {
#pragma unroll
    for (int w = 0; w < kWarps; ++w) of_warp[w * kDigits + thread] = 0;
    __syncthreads();
    const int64_t k = first + thread;
    const bool exists = k < end;
    const int64_t row = exists ? rows[k] : 0;
    const auto digit = static_cast<unsigned>(DigitOf(row, shift));
    unsigned same = __ballot_sync(kAllLanes, exists);  // lanes of the warp with this digit
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
      sorted_rows[at] = row;
      sorted_picks[at] = picks[k];
    }
    __syncthreads();
#pragma unroll
    for (int w = 0; w < kWarps; ++w) next[thread] += of_warp[w * kDigits + thread];
  }
}

/// begins[row]: the first of the sorted picks that is not of a row before it; rows + 1 of them.
__global__ void __launch_bounds__(kThreads)
    FindBegins(const int64_t* sorted_rows, int64_t count, int64_t length, int64_t* begins) {
  for (int64_t row = FirstElement(); row <= length; row += ElementStep()) {
    int64_t low = 0, high = count;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (sorted_rows[middle] < row) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins[row] = low;
  }
}

/// dx (outer, length, width) from dy (outer, count, width), kLength neighbours a thread; `width`
/// and `size` count these.
template <class T, int kLength, class Index>
__global__ void __launch_bounds__(kThreads)
    SumPicks(const T* dy, const int64_t* picks, const int64_t* begins, int64_t count,
             DivisorOf<Index> length, DivisorOf<Index> width, T* dx, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const Index line = width.Divide(static_cast<Index>(i)), outer = length.Divide(line);
    const Index row = line - outer * length.value();
    const int64_t pitch = int64_t{width.value()} * kLength;
    const T* source =
        dy + int64_t{outer} * count * pitch + (i - int64_t{line} * width.value()) * kLength;
    const int64_t end = begins[row + 1];
    double sum[kLength] = {};
#pragma unroll 4
    for (int64_t p = begins[row]; p < end; ++p) {
      const auto values = LoadVector<T, kLength>(source + picks[p] * pitch);
#pragma unroll
      for (int j = 0; j < kLength; ++j)
        sum[j] += static_cast<double>(Cast<ComputeType<T>>(values.v[j]));
    }
    Vector<T, kLength> out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) out.v[j] = Cast<T>(sum[j]);
    StoreVector(dx + i * kLength, out);
  }
}

int64_t Tiles(int64_t count) { return (count + kTile - 1) / kTile; }

/// The memory of the sort.
struct Sorting {
  template <class Spec>
  Sorting(const Spec& spec, void* workspace)
      : rows(static_cast<int64_t*>(workspace)),
        picks(rows + spec.count),
        sorted_rows(picks + spec.count),
        sorted_picks(sorted_rows + spec.count),
        begins(sorted_picks + spec.count),
        counts(begins + spec.x_shape[spec.axis] + 1) {}
  int64_t *rows, *picks, *sorted_rows, *sorted_picks;
  int64_t* begins;  ///< of each row
  int64_t* counts;
};

/// Leaves the rows of all picks in `rows`, in order, and the picks beside them.
void QueueSort(Sorting& sorting, int64_t count, int64_t length, Stream stream) {
  const auto blocks = static_cast<unsigned>(Tiles(count));
  const int bits = static_cast<int>(std::bit_width(static_cast<uint64_t>(length - 1)));
  for (int shift = 0; shift < bits; shift += kDigitBits) {
    Launch(CountDigits, blocks, kThreads, stream, sorting.rows, count, shift, sorting.counts);
    Launch(SumBefore, blocks > 0 ? 1 : 0, kThreads, stream, sorting.counts,
           int64_t{blocks} * kDigits);
    Launch(MoveDigits, blocks, kThreads, stream, sorting.rows, sorting.picks, count, shift,
           sorting.counts, sorting.sorted_rows, sorting.sorted_picks);
    std::swap(sorting.rows, sorting.sorted_rows);
    std::swap(sorting.picks, sorting.sorted_picks);
  }
}

void RunGatherBackward(const GatherBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t length = spec.x_shape[spec.axis];
  const int64_t width = spec.x_shape.Count(spec.axis + 1, spec.x_shape.rank());
  const int64_t size = execution.outputs[0].size();
  Sorting sorting(spec, execution.workspace);
  LaunchIndependent(ReadPicks, GridFor(spec.count, kThreads), kThreads, stream,
                    IndicesOf(spec, execution.inputs[1]), sorting.rows, sorting.picks);
  if (size == 0) return;
  QueueSort(sorting, spec.count, length, stream);
  LaunchIndependent(FindBegins, GridFor(length + 1, kThreads), kThreads, stream, sorting.rows,
                    spec.count, length, sorting.begins);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* dy = execution.in<T>(0);
    T* dx = execution.out<T>(0);
    const auto launch = [&]<int kLength, class Index>(Index) {
      LaunchIndependent(SumPicks<T, kLength, Index>, GridFor(size / kLength, kThreads), kThreads,
                        stream, dy, sorting.picks, sorting.begins, spec.count,
                        DivisorOf<Index>(length), DivisorOf<Index>(width / kLength), dx,
                        size / kLength);
    };
    constexpr int kLength = kVectorLength<T>;
    if (!FitsIndex32(size)) {
      launch.template operator()<1>(int64_t{});
    } else if (width % kLength == 0 && IsAligned(dy) && IsAligned(dx)) {
      launch.template operator()<kLength>(uint32_t{});
    } else {
      launch.template operator()<1>(uint32_t{});
    }
  });
}

size_t BackwardWorkspace(const GatherBackwardSpec& spec) {
  const int64_t counts = Tiles(spec.count) * kDigits;
  return static_cast<size_t>(4 * spec.count + spec.x_shape[spec.axis] + 1 + counts) *
         sizeof(int64_t);
}

}  // namespace

void RegisterGather() {
  RegisterKernels<GatherSpec, RunGather>();
  RegisterKernels<GatherBackwardSpec, RunGatherBackward, BackwardWorkspace>();
}

}  // namespace singa::cuda
