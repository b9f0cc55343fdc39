// Positions of the largest and smallest elements along an axis, and top-k accuracy: how often the
// label's score is among the k largest.

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/reduce_space.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/common/report.h"
#include "model/formula/reduction.h"
#include "model/operation/reduce/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// Whether the first element wins: NaN beats every number, and of equal elements the earlier wins.
template <class Fold>
__device__ bool Wins(typename Fold::Acc a, int64_t a_at, typename Fold::Acc b, int64_t b_at) {
  const bool a_nan = a != a, b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a != b) return Fold::Beats(a, b);
  return a_at < b_at;
}

/// One warp per result. Its elements are neighbours in memory.
template <class Fold, class T>
__global__ void __launch_bounds__(kThreads)
    ArgOfRuns(const T* x, Strided<2, int64_t> kept, int64_t results, int64_t length, int64_t step,
              int64_t* y) {
  using Acc = typename Fold::Acc;
  const int64_t result =
      static_cast<int64_t>(blockIdx.x) * (kThreads / kWarpThreads) + threadIdx.x / kWarpThreads;
  if (result >= results) return;  // for the whole warp
  const T* base = x + kept.Locate(result).at[1];
  int64_t at = threadIdx.x % kWarpThreads;
  if (at >= length) at = 0;
  Acc best = Fold::Load(base[at * step]);
  for (int64_t i = at + kWarpThreads; i < length; i += kWarpThreads) {
    const Acc value = Fold::Load(base[i * step]);
    if (Wins<Fold>(value, i, best, at)) {
      best = value;
      at = i;
    }
  }
  for (int bits = kWarpThreads / 2; bits > 0; bits /= 2) {
    const Acc other = __shfl_xor_sync(kAllLanes, best, bits);
    const int64_t other_at = __shfl_xor_sync(kAllLanes, at, bits);
    if (Wins<Fold>(other, other_at, best, at)) {
      best = other;
      at = other_at;
    }
  }
  if (threadIdx.x % kWarpThreads == 0) y[result] = at;
}

/// One thread per result.
template <class Fold, class T>
__global__ void __launch_bounds__(kThreads)
    ArgOfColumns(const T* x, Strided<2, int64_t> kept, int64_t results, int64_t length,
                 int64_t step, int64_t* y) {
  for (int64_t result = FirstElement(); result < results; result += ElementStep()) {
    const T* base = x + kept.Locate(result).at[1];
    int64_t at = 0;
    auto best = Fold::Load(base[0]);
    for (int64_t i = 1; i < length; ++i) {
      const auto value = Fold::Load(base[i * step]);
      if (Wins<Fold>(value, i, best, at)) {
        best = value;
        at = i;
      }
    }
    y[result] = at;
  }
}

template <class Fold, class T>
void ArgReduceTyped(const ArgReduceSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Strides& strides = execution.inputs[0].strides();
  const ReduceSpace space(spec.shape, strides, uint32_t{1} << spec.axis);
  if (space.results == 0) return;
  const Strided<2, int64_t> kept(space.kept);
  const T* x = execution.in<T>(0);
  auto* y = execution.out<int64_t>(0);
  if (space.by_runs) {
    Launch(ArgOfRuns<Fold, T>, GridFor(space.results, kThreads / kWarpThreads), kThreads, stream, x,
           kept, space.results, space.length, strides[spec.axis], y);
  } else {
    LaunchIndependent(ArgOfColumns<Fold, T>, GridFor(space.results, kThreads), kThreads, stream, x,
                      kept, space.results, space.length, strides[spec.axis], y);
  }
}

void RunArgReduce(const ArgReduceSpec& spec, const Execution& execution) {
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() {
    if (spec.largest) {
      ArgReduceTyped<formula::MaxFold<T>, T>(spec, execution);
    } else {
      ArgReduceTyped<formula::MinFold<T>, T>(spec, execution);
    }
  });
}

// ---- CountTopK

__global__ void SetZero(int64_t* value) { *value = 0; }

/// One warp per row. The order of integer additions does not matter.
template <class T, class Label>
__global__ void __launch_bounds__(kThreads)
    CountTopK(const T* scores, const Label* labels, int64_t rows, int64_t classes, int64_t k,
              Fault* fault, int64_t* hits) {
  using C = ComputeType<T>;
  const int64_t row =
      static_cast<int64_t>(blockIdx.x) * (kThreads / kWarpThreads) + threadIdx.x / kWarpThreads;
  if (row >= rows) return;
  const unsigned lane = threadIdx.x % kWarpThreads;
  const auto label = static_cast<int64_t>(labels[row]);
  const bool exists = label >= 0 && label < classes;
  if (!exists && lane == 0)
    Report(fault, FaultKind::kNoLabel, static_cast<double>(label), row, 0, classes);
  const T* score = scores + row * classes;
  const C own = exists ? Cast<C>(score[label]) : C(0);
  int64_t above = 0;
  for (int64_t i = lane; i < classes; i += kWarpThreads) above += Cast<C>(score[i]) > own;
  above = JoinWarp(above, Plus());
  if (lane == 0 && exists && own == own && above < k)
    atomicAdd(reinterpret_cast<unsigned long long*>(hits), 1ull);
}

void RunCountTopK(const CountTopKSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  LaunchIndependent(SetZero, 1, 1, stream, execution.out<int64_t>(0));
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    SwitchIndex(spec.label_dtype, spec.op(), [&]<class Label>() {
      Launch(CountTopK<T, Label>, GridFor(spec.rows, kThreads / kWarpThreads), kThreads, stream,
             execution.in<T>(0), execution.in<Label>(1), spec.rows, spec.classes, spec.k,
             FaultOf(spec.op()), execution.out<int64_t>(0));
    });
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<ArgReduceSpec, RunArgReduce>();
  RegisterKernels<CountTopKSpec, RunCountTopK>();
}

}  // namespace singa::cuda
