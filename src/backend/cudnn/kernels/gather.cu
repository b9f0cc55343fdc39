// Rows picked by number, and rows added up by number: Gather and Embedding.
//
// Backward groups the picks by row, each group in the order of the picks, and then gives each
// element of dx to a thread: the sums have one order, which atomic additions would not.

#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/positions.h"
#include "backend/cudnn/kernels/register.h"
#include "model/operation/gather_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kSortThreads = 512;

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

/// y (outer, count, width)
template <class U>
__global__ void __launch_bounds__(kThreads)
    Gather(const U* x, Indices indices, Strided<2, int64_t> outer, Strided<2, int64_t> inner,
           int64_t step, int64_t width, U* y, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t row = i / width, k = row % indices.count;
    y[i] = x[outer.Locate(row / indices.count).at[1] + indices.At(k) * step +
             inner.Locate(i - row * width).at[1]];
  }
}

void RunGather(const GatherSpec& spec, const Execution& execution) {
  const Tensor& x = execution.inputs[0];
  const int64_t size = execution.outputs[0].size();
  const Stream stream = StreamOf(execution.device);
  const Indices indices = IndicesOf(spec, execution.inputs[1]);
  if (size == 0 || x.size() == 0) return CheckIndices(indices, stream);
  const Strided<2, int64_t> outer(AxesBetween(spec.x_shape, x.strides(), 0, spec.axis));
  const StridedSpace<2> inner =
      AxesBetween(spec.x_shape, x.strides(), spec.axis + 1, spec.x_shape.rank());
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
    LaunchIndependent(Gather<U>, GridFor(size, kThreads), kThreads, stream, execution.in<U>(0),
                      indices, outer, Strided<2, int64_t>(inner), x.strides()[spec.axis],
                      inner.size(), execution.out<U>(0), size);
  });
}

// ---- backward

__global__ void __launch_bounds__(kThreads) FillZero(int64_t* data, int64_t count) {
  for (int64_t i = FirstElement(); i < count; i += ElementStep()) data[i] = 0;
}

/// positions[k], and how often each row is picked.
__global__ void __launch_bounds__(kThreads)
    CountPicks(Indices indices, int64_t* positions, int64_t* count) {
  for (int64_t k = FirstElement(); k < indices.count; k += ElementStep()) {
    positions[k] = indices.At(k);
    atomicAdd(reinterpret_cast<unsigned long long*>(count + positions[k]), 1ull);
  }
}

/// The sums of all counts before each one, in place; one block.
__global__ void __launch_bounds__(kSortThreads) SumBefore(int64_t* counts, int64_t length) {
  SINGA_SHARED(int64_t, kSortThreads, sum);
  int64_t before = 0;
  for (int64_t first = 0; first < length; first += kSortThreads) {
    const int64_t i = first + threadIdx.x;
    const int64_t own = i < length ? counts[i] : 0;
    sum[threadIdx.x] = own;
    __syncthreads();
    for (int distance = 1; distance < kSortThreads; distance *= 2) {  // Hillis and Steele 1986
      const int64_t left = static_cast<int>(threadIdx.x) >= distance
                               ? sum[threadIdx.x - static_cast<unsigned>(distance)]
                               : 0;
      __syncthreads();
      sum[threadIdx.x] += left;
      __syncthreads();
    }
    if (i < length) counts[i] = before + sum[threadIdx.x] - own;
    before += sum[kSortThreads - 1];
    __syncthreads();
  }
}

/// Places the picks in their groups, in order; `next` is where each group goes on, and ends as
/// where the next one begins. One block, a piece of the picks after the other.
__global__ void __launch_bounds__(kSortThreads)
    PlacePicks(const int64_t* positions, int64_t count, int64_t* next, int64_t* picks) {
  SINGA_SHARED(int64_t, kSortThreads, piece);
  for (int64_t first = 0; first < count; first += kSortThreads) {
    const int64_t k = first + threadIdx.x;
    const int64_t row = k < count ? positions[k] : -1;
    piece[threadIdx.x] = row;
    __syncthreads();
    // Earlier and later picks of the same row in this piece.
    int before = 0, after = 0;
    for (int other = 0; other < kSortThreads; ++other) {
      const bool same = piece[static_cast<unsigned>(other)] == row;
      before += same && other < static_cast<int>(threadIdx.x);
      after += same && other > static_cast<int>(threadIdx.x);
    }
    const int64_t start = k < count ? next[row] : 0;
    if (k < count) picks[start + before] = k;
    __syncthreads();  // all have read `next`
    if (k < count && after == 0) next[row] = start + before + 1;
    __syncthreads();
  }
}

/// dx (outer, length, width) from dy (outer, count, width)
template <class T>
__global__ void __launch_bounds__(kThreads)
    SumPicks(const T* dy, const int64_t* picks, const int64_t* ends, int64_t count, int64_t length,
             int64_t width, T* dx, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t line = i / width, column = i - line * width, row = line % length;
    const T* source = dy + line / length * count * width + column;
    const int64_t begin = row > 0 ? ends[row - 1] : 0, end = ends[row];
    double sum = 0;
    for (int64_t p = begin; p < end; ++p)
      sum += static_cast<double>(Cast<ComputeType<T>>(source[picks[p] * width]));
    dx[i] = Cast<T>(sum);
  }
}

void RunGatherBackward(const GatherBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t length = spec.x_shape[spec.axis];
  const int64_t width = spec.x_shape.Count(spec.axis + 1, spec.x_shape.rank());
  const int64_t size = execution.outputs[0].size();
  auto* positions = static_cast<int64_t*>(execution.workspace);
  int64_t* picks = positions + spec.count;
  int64_t* rows = picks + spec.count;
  LaunchIndependent(FillZero, GridFor(length, kThreads), kThreads, stream, rows, length);
  LaunchIndependent(CountPicks, GridFor(spec.count, kThreads), kThreads, stream,
                    IndicesOf(spec, execution.inputs[1]), positions, rows);
  if (size == 0) return;
  Launch(SumBefore, 1, kSortThreads, stream, rows, length);
  Launch(PlacePicks, 1, kSortThreads, stream, positions, spec.count, rows, picks);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(SumPicks<T>, GridFor(size, kThreads), kThreads, stream, execution.in<T>(0),
                      picks, rows, spec.count, length, width, execution.out<T>(0), size);
  });
}

size_t BackwardWorkspace(const GatherBackwardSpec& spec) {
  return static_cast<size_t>(2 * spec.count + spec.x_shape[spec.axis] + 1) * sizeof(int64_t);
}

}  // namespace

void RegisterGather() {
  RegisterKernels<GatherSpec, RunGather>();
  RegisterKernels<GatherBackwardSpec, RunGatherBackward, BackwardWorkspace>();
}

}  // namespace singa::cuda
