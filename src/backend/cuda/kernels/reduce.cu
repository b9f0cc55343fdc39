// Reductions along any axes, and their derivatives.
//
//   runs: the threads of a block share one result, whose elements are neighbours in memory.
//   columns: neighbouring threads have neighbouring results, several each if these are contiguous,
//   and loop along the folded axes.
//
// If there are too few results to fill a GPU, the folded range is divided into parts, and a second
// kernel joins them. The number of parts depends on the lengths alone, so sums always have the same
// bits.

#include <algorithm>
#include <bit>
#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/map.h"
#include "backend/cuda/kernels/common/reduce_space.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/formula/reduction.h"
#include "model/operation/reduce/spec.h"

namespace singa::cuda {
namespace {

using formula::SumType;

constexpr int kThreads = 256;
/// Joins acc with elements first, first + step, ... of the folded axes, below `end`, each of
/// kLength neighbours. Several loads are in flight, but elements are joined in order.
template <class Fold, int kLength, class T, class Index>
__device__ __forceinline__ void FoldSteps(typename Fold::Acc (&acc)[kLength], const T* base,
                                          const Strided<1, Index>& folded, int64_t first,
                                          int64_t end, int64_t step) {
  constexpr int kUnroll = sizeof(Index) == 4 ? 4 : 1;  // 64-bit divisions need all registers
  const auto load = [&](int64_t i) {
    return LoadVector<T, kLength>(base + folded.Locate(static_cast<Index>(i)).at[0]);
  };
  const auto join = [&](const Vector<T, kLength>& values) {
#pragma unroll
    for (int c = 0; c < kLength; ++c) acc[c] = Fold::Join(acc[c], Fold::Load(values.v[c]));
  };
  int64_t i = first;
  for (; i + (kUnroll - 1) * step < end; i += kUnroll * step) {
    Vector<T, kLength> values[kUnroll];
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) values[k] = load(i + k * step);
#pragma unroll
    for (int k = 0; k < kUnroll; ++k) join(values[k]);
  }
  for (; i < end; i += step) join(load(i));
}

/// Stores acc of one part of one result in partial[part · kept + result].
template <class Fold, class T, class Index>
__global__ void __launch_bounds__(kThreads)
    FoldRuns(const T* x, Strided<2, Index> kept, Strided<1, Index> folded, int64_t results,
             int64_t length, int64_t parts, typename Fold::Acc* partial) {
  using Acc = typename Fold::Acc;
  const auto join = [](Acc a, Acc b) { return Fold::Join(a, b); };
  const int64_t part = blockIdx.y;
  const int64_t end = (part + 1) * length / parts;
  const int64_t first = part * length / parts + threadIdx.x;
  for (int64_t result = blockIdx.x; result < results; result += gridDim.x) {
    const T* base = x + kept.Locate(static_cast<Index>(result)).at[1];
    Acc acc[1] = {Fold::Identity()};
    FoldSteps<Fold>(acc, base, folded, first, end, int64_t{blockDim.x});
    const Acc all = JoinBlock(acc[0], Fold::Identity(), join);
    if (threadIdx.x == 0) partial[part * results + result] = all;
  }
}

/// `lanes` neighbouring threads have kLength results each.
template <class Fold, class T, int kLength>
__global__ void __launch_bounds__(kThreads)
    FoldColumns(const T* x, Strided<2, uint32_t> kept, Strided<1, uint32_t> folded, int64_t results,
                int64_t length, int64_t parts, int lanes, typename Fold::Acc* partial) {
  using Acc = typename Fold::Acc;
  const int thread = static_cast<int>(threadIdx.x), row = thread / lanes;
  const int64_t first = int64_t{blockIdx.x} * lanes * kLength;
  const int64_t result = first + (thread - row * lanes) * kLength;
  const int64_t part = blockIdx.y;
  Acc acc[kLength];
#pragma unroll
  for (int c = 0; c < kLength; ++c) acc[c] = Fold::Identity();
  if (result < results) {
    const T* base = x + kept.Locate(static_cast<uint32_t>(result)).at[1];
    const int64_t end = (part + 1) * length / parts;
    FoldSteps<Fold>(acc, base, folded, part * length / parts + row, end, kThreads / lanes);
  }
  const Acc all = JoinColumns<kThreads>(acc, lanes, Fold::Identity(),
                                        [](Acc a, Acc b) { return Fold::Join(a, b); });
  if (thread < lanes * kLength && first + thread < results)
    partial[part * results + first + thread] = all;
}

/// Neighbouring results that a thread folds together, so that a warp reads whole lines of 128
/// bytes.
template <class T>
inline constexpr int kNeighbours = !std::is_integral_v<T> && sizeof(T) < 8 ? 4 : 1;

/// Whether vectors of `length` results are contiguous and aligned in x at every position.
template <class T>
bool HasNeighbours(const ReduceSpace& space, const T* x, int64_t length) {
  if (space.kept.inner_length() % length != 0 || space.kept.inner_stride(1) != 1 ||
      !IsAligned(x, static_cast<size_t>(length) * sizeof(T)))
    return false;
  for (int axis = 0; axis < space.kept.rank() - 1; ++axis)
    if (space.kept.stride(1, axis) % length != 0) return false;
  for (int axis = 0; axis < space.folded.rank(); ++axis)
    if (space.folded.stride(0, axis) % length != 0) return false;
  return true;
}

/// out[result] = finish(join of the parts). `rows` threads share a result; `rows` is a power of two
/// that divides the block size.
template <class Fold, class Out, class Finish>
__global__ void __launch_bounds__(kThreads)
    JoinParts(const typename Fold::Acc* partial, int64_t results, int64_t parts, int rows, Out* out,
              Finish finish) {
  using Acc = typename Fold::Acc;
  SINGA_SHARED(Acc, kThreads, of_thread);
  const int columns = kThreads / rows;
  const int column = threadIdx.x % columns, row = threadIdx.x / columns;
  const int64_t result = static_cast<int64_t>(blockIdx.x) * columns + column;
  Acc acc = Fold::Identity();
  if (result < results)
    for (int64_t part = row; part < parts; part += rows)
      acc = Fold::Join(acc, partial[part * results + result]);
  of_thread[threadIdx.x] = acc;
  __syncthreads();
  if (row > 0 || result >= results) return;
  for (int r = 1; r < rows; ++r) acc = Fold::Join(acc, of_thread[r * columns + column]);
  out[result] = finish(acc);
}

template <class Fold, class T, class Out, class Finish>
void FoldAxes(const ReduceSpec& spec, const Execution& execution, const Finish& finish) {
  using Acc = typename Fold::Acc;
  const Stream stream = StreamOf(execution.device);
  const ReduceSpace space(spec.shape, execution.inputs[0].strides(), spec.axes);
  if (space.results == 0) return;
  auto* partial = static_cast<Acc*>(execution.workspace);
  const T* x = execution.in<T>(0);
  const auto launch_runs = [&]<class Index>(Index) {
    // Short runs get single warps: most GPUs have over a hundred multiprocessors to fill.
    const int threads = space.length >= 1024 ? kThreads : kWarpThreads;
    Launch(FoldRuns<Fold, T, Index>,
           dim3(GridFor(space.results, 1).x, static_cast<unsigned>(space.parts)), threads, stream,
           x, Strided<2, Index>(space.kept), Strided<1, Index>(space.folded), space.results,
           space.length, space.parts, partial);
  };
  if (!FitsIndex32(space.length) || !FitsIndex32(space.results)) {
    launch_runs(int64_t{});
  } else if (space.by_runs) {
    launch_runs(uint32_t{});
  } else {
    const auto launch_columns = [&]<int kLength>() {
      const int lanes = LanesFor(space.results, kLength);
      const int64_t width = int64_t{lanes} * kLength;
      Launch(FoldColumns<Fold, T, kLength>,
             dim3(static_cast<unsigned>((space.results + width - 1) / width),
                  static_cast<unsigned>(space.parts)),
             kThreads, stream, x, Strided<2, uint32_t>(space.kept),
             Strided<1, uint32_t>(space.folded), space.results, space.length, space.parts, lanes,
             partial);
    };
    if (HasNeighbours(space, x, kNeighbours<T>)) {
      launch_columns.template operator()<kNeighbours<T>>();
    } else {
      launch_columns.template operator()<1>();
    }
  }
  const auto rows = static_cast<int>(std::bit_floor(std::min<uint64_t>(space.parts, kWarpThreads)));
  Launch(JoinParts<Fold, Out, Finish>, GridFor(space.results, kThreads / rows), kThreads, stream,
         partial, space.results, space.parts, rows, execution.out<Out>(0), finish);
}

template <class Acc, class Out>
struct Store {
  constexpr Out operator()(Acc value) const { return Convert<Out>(value); }
};
template <class Acc, class Out>
struct Divide {
  double count;
  constexpr Out operator()(Acc value) const {
    return Convert<Out>(static_cast<double>(value) / count);
  }
};
template <class Acc, class Out>
struct Root {
  constexpr Out operator()(Acc value) const {
    return Convert<Out>(std::sqrt(static_cast<double>(value)));
  }
};

template <class T>
void ReduceTyped(const ReduceSpec& spec, const Execution& execution) {
  using formula::AbsSumFold, formula::MaxFold, formula::MinFold, formula::ProdFold,
      formula::SquareSumFold, formula::SumFold;
  // The type of sums: T for floats, int64 for integers.
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  using Acc = SumType<T>;
  using C = ComputeType<T>;
  double count = 1;
  for (int axis = 0; axis < spec.shape.rank(); ++axis)
    if (spec.axes >> axis & 1) count *= static_cast<double>(spec.shape[axis]);
  switch (spec.reduce) {
    case ReduceOp::kSum:
      return FoldAxes<SumFold<T>, T, Sum>(spec, execution, Store<Acc, Sum>());
    case ReduceOp::kMean:
      return FoldAxes<SumFold<T>, T, Sum>(spec, execution, Divide<Acc, Sum>{count});
    case ReduceOp::kL1:
      return FoldAxes<AbsSumFold<T>, T, Sum>(spec, execution, Store<Acc, Sum>());
    case ReduceOp::kL2:
      return FoldAxes<SquareSumFold<T>, T, Sum>(spec, execution, Root<Acc, Sum>());
    case ReduceOp::kSumSquare:
      return FoldAxes<SquareSumFold<T>, T, Sum>(spec, execution, Store<Acc, Sum>());
    case ReduceOp::kProd:
      return FoldAxes<ProdFold<T>, T, Sum>(spec, execution, Store<Acc, Sum>());
    case ReduceOp::kMax:
      return FoldAxes<MaxFold<T>, T, T>(spec, execution, Store<C, T>());
    default:
      return FoldAxes<MinFold<T>, T, T>(spec, execution, Store<C, T>());
  }
}

void RunReduce(const ReduceSpec& spec, const Execution& execution) {
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() { ReduceTyped<T>(spec, execution); });
}

size_t ReduceWorkspace(const ReduceSpec& spec) {
  return ReduceSpace::PartialBytes(spec.shape, spec.axes);
}

// ---- backward

// Computed from dy, and from x and y if the function needs them.
template <class C>
struct LinearGradient {
  C scale;
  constexpr C operator()(C dy) const { return dy * scale; }
};
template <class C>
struct L1Gradient {
  constexpr C operator()(C dy, C x, C) const {
    return x == x ? dy * static_cast<C>((x > 0) - (x < 0)) : x;
  }
};
template <class C>
struct L2Gradient {  // 0 at y = 0, where the norm has no derivative
  constexpr C operator()(C dy, C x, C y) const { return y == 0 ? C(0) : dy * (x / y); }
};
template <class C>
struct SumSquareGradient {
  constexpr C operator()(C dy, C x, C) const { return 2 * x * dy; }
};

template <class C>
void BackwardByElement(const ReduceBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Tensor& dx = execution.outputs[0];
  double count = 1;
  if (spec.reduce == ReduceOp::kMean)
    for (int axis = 0; axis < spec.shape.rank(); ++axis)
      if (spec.axes >> axis & 1) count *= static_cast<double>(spec.shape[axis]);
  switch (spec.reduce) {
    case ReduceOp::kL1:
      return Map<3, C>(execution.inputs, dx, stream, L1Gradient<C>());
    case ReduceOp::kL2:
      return Map<3, C>(execution.inputs, dx, stream, L2Gradient<C>());
    case ReduceOp::kSumSquare:
      return Map<3, C>(execution.inputs, dx, stream, SumSquareGradient<C>());
    default:
      return Map<1, C>(execution.inputs.first(1), dx, stream,
                       LinearGradient<C>{static_cast<C>(1 / count)});
  }
}

/// Max, min, prod: dx depends on all elements that were folded into a result. One block per result.
template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    BackwardByResult(bool product, const T* dy, const T* x, const T* y, T* dx,
                     Strided<4, Index> results, int64_t count, Strided<2, Index> elements,
                     int64_t length) {
  using C = ComputeType<T>;
  for (int64_t r = blockIdx.x; r < count; r += gridDim.x) {
    const auto at = results.Locate(static_cast<Index>(r));
    const T* const from = x + at.at[1];
    T* const to = dx + at.at[0];
    formula::JoinedGradient joined{product, static_cast<double>(Cast<C>(dy[at.at[2]])),
                                   static_cast<double>(Cast<C>(y[at.at[3]]))};
    for (int64_t i = threadIdx.x; i < length; i += blockDim.x)
      joined.Add(static_cast<double>(Cast<C>(from[elements.Locate(static_cast<Index>(i)).at[1]])));
    joined.chosen = SumBlock(joined.chosen);
    joined.rest = JoinBlock(joined.rest, 1.0, [](double a, double b) { return a * b; });
    for (int64_t i = threadIdx.x; i < length; i += blockDim.x) {
      const auto offsets = elements.Locate(static_cast<Index>(i));
      const auto value = static_cast<double>(Cast<C>(from[offsets.at[1]]));
      to[offsets.at[0]] = Cast<T>(static_cast<C>(joined.Of(value)));
    }
  }
}

template <class T>
void LaunchByResult(const ReduceBackwardSpec& spec, const Execution& execution) {
  const auto& inputs = execution.inputs;
  const std::array<const Strides*, 4> strides = {&execution.outputs[0].strides(),
                                                 &inputs[1].strides(), &inputs[0].strides(),
                                                 &inputs[2].strides()};
  Shape kept, folded;
  std::array<Strides, 4> kept_strides;
  std::array<Strides, 2> folded_strides;
  for (int axis = 0; axis < spec.shape.rank(); ++axis) {
    if (spec.axes >> axis & 1) {
      folded.push_back(spec.shape[axis]);
      for (int k = 0; k < 2; ++k) folded_strides[k].push_back((*strides[k])[axis]);
    } else {
      kept.push_back(spec.shape[axis]);
      for (int k = 0; k < 4; ++k) kept_strides[k].push_back((*strides[k])[axis]);
    }
  }
  const StridedSpace<4> results(kept, kept_strides);
  const StridedSpace<2> elements(folded, folded_strides);
  if (results.size() == 0 || elements.size() == 0) return;
  const auto launch = [&]<class Index>(Index) {
    Launch(BackwardByResult<T, Index>, GridFor(results.size(), 1),
           elements.size() >= 1024 ? kThreads : kWarpThreads, StreamOf(execution.device),
           spec.reduce == ReduceOp::kProd, execution.in<T>(0), execution.in<T>(1),
           execution.in<T>(2), execution.out<T>(0), Strided<4, Index>(results), results.size(),
           Strided<2, Index>(elements), elements.size());
  };
  if (FitsIndex32(results.size()) && FitsIndex32(elements.size())) {
    launch(uint32_t{});
  } else {
    launch(int64_t{});
  }
}

void RunReduceBackward(const ReduceBackwardSpec& spec, const Execution& execution) {
  switch (spec.reduce) {
    case ReduceOp::kMax:
    case ReduceOp::kMin:
    case ReduceOp::kProd:
      return SwitchFloat(spec.dtype, spec.op(),
                         [&]<class T>() { LaunchByResult<T>(spec, execution); });
    default:
      return spec.dtype == kFloat64 ? BackwardByElement<double>(spec, execution)
                                    : BackwardByElement<float>(spec, execution);
  }
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<ReduceSpec, RunReduce, ReduceWorkspace>();
  RegisterKernels<ReduceBackwardSpec, RunReduceBackward>();
}

}  // namespace singa::cuda
