// TopK and CumSum.
//
// TopK sorts all lines at once: first all elements by their keys, then by the number of their line.
// The sort is stable, so the elements of a line stay in order.

#include <bit>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/radix_sort.h"
#include "model/formula/reduction.h"
#include "model/formula/sort_key.h"
#include "model/operation/sort/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    MakeKeys(const T* x, bool descending, int64_t* keys, int64_t* places, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    keys[i] = static_cast<int64_t>(formula::SortKey(x[i], descending));
    places[i] = i;
  }
}

__global__ void __launch_bounds__(kThreads)
    FindLines(const int64_t* places, AxisLines lines, int64_t* keys, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep())
    keys[i] = places[i] / (lines.length * lines.inner) * lines.inner + places[i] % lines.inner;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    TakeFirst(const T* x, const int64_t* places, AxisLines lines, int64_t k, T* values,
              int64_t* indices, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t row = i / lines.inner, outer = row / k;
    const int64_t line = outer * lines.inner + i % lines.inner;
    const int64_t place = places[line * lines.length + row % k];
    values[i] = x[place];
    indices[i] = place / lines.inner % lines.length;
  }
}

void RunTopK(const TopKSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t size = spec.lines() * spec.length, taken = spec.lines() * spec.k;
  if (taken == 0) return;
  RadixSort sort(size, execution.workspace);
  const dim3 grid = GridFor(size, kThreads);
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(MakeKeys<T>, grid, kThreads, stream, execution.in<T>(0), spec.largest,
                      sort.keys, sort.values, size);
    sort.Queue(formula::kSortBits<T>, stream);
    LaunchIndependent(FindLines, grid, kThreads, stream, sort.values, spec, sort.keys, size);
    sort.Queue(std::bit_width(static_cast<uint64_t>(spec.lines() - 1)), stream);
    LaunchIndependent(TakeFirst<T>, GridFor(taken, kThreads), kThreads, stream, execution.in<T>(0),
                      sort.values, spec, spec.k, execution.out<T>(0), execution.out<int64_t>(1),
                      taken);
  });
}

size_t TopKWorkspace(const TopKSpec& spec) { return RadixSort::Bytes(spec.lines() * spec.length); }

// ---- CumSum

/// One thread per line; neighbouring lines are neighbours in memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    SumColumns(const T* x, AxisLines lines, bool exclusive, bool reverse, T* y) {
  using Fold = formula::SumFold<T>;
  for (int64_t line = FirstElement(); line < lines.lines(); line += ElementStep()) {
    const int64_t begin = line / lines.inner * lines.length * lines.inner + line % lines.inner;
    typename Fold::Acc sum = Fold::Identity();
    for (int64_t i = 0; i < lines.length; ++i) {
      const int64_t at = begin + (reverse ? lines.length - 1 - i : i) * lines.inner;
      const auto through = Fold::Join(sum, Fold::Load(x[at]));
      y[at] = Cast<T>(exclusive ? sum : through);
      sum = through;
    }
  }
}

/// One block per line, whose elements are neighbours in memory.
template <class T>
__global__ void __launch_bounds__(kThreads)
    SumLine(const T* x, int64_t lines, int64_t length, bool exclusive, bool reverse, T* y) {
  using Fold = formula::SumFold<T>;
  using Acc = typename Fold::Acc;
  constexpr unsigned kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(Acc, kWarps, of_warp);
  const unsigned lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  for (int64_t line = blockIdx.x; line < lines; line += gridDim.x) {
    const auto place = [&](int64_t i) { return line * length + (reverse ? length - 1 - i : i); };
    Acc before = Fold::Identity();  // sum of the earlier pieces
    for (int64_t first = 0; first < length; first += kThreads) {
      const int64_t i = first + threadIdx.x, source = i - exclusive;
      Acc sum = i < length && source >= 0 ? Fold::Load(x[place(source)]) : Fold::Identity();
      for (unsigned distance = 1; distance < kWarpThreads; distance *= 2) {
        const Acc other = __shfl_up_sync(kAllLanes, sum, distance);
        if (lane >= distance) sum = Fold::Join(other, sum);
      }
      if (lane == kWarpThreads - 1) of_warp[warp] = sum;
      __syncthreads();
      Acc earlier = before;
      for (unsigned w = 0; w < kWarps; ++w) {
        if (w < warp) earlier = Fold::Join(earlier, of_warp[w]);
        before = Fold::Join(before, of_warp[w]);
      }
      if (i < length) y[place(i)] = Cast<T>(Fold::Join(earlier, sum));
      __syncthreads();  // all threads have read of_warp
    }
  }
}

void RunCumSum(const CumSumSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  if (spec.lines() * spec.length == 0) return;
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() {
    const T* x = execution.in<T>(0);
    T* y = execution.out<T>(0);
    if (spec.inner == 1) {
      Launch(SumLine<T>, GridFor(spec.outer, 1), kThreads, stream, x, spec.outer, spec.length,
             spec.exclusive, spec.reverse, y);
    } else {
      LaunchIndependent(SumColumns<T>, GridFor(spec.lines(), kThreads), kThreads, stream, x, spec,
                        spec.exclusive, spec.reverse, y);
    }
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<TopKSpec, RunTopK, TopKWorkspace>();
  RegisterKernels<CumSumSpec, RunCumSum>();
}

}  // namespace singa::cuda
