// Rows named by an index argument, and scatters. Updates are sorted by the row that they go to,
// stably, and each element of a row joins its updates in their order. So the order of sums is
// fixed, unlike with atomic additions.

#include <type_traits>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/positions.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/radix_sort.h"
#include "model/formula/reduction.h"
#include "model/operation/indexing/scatter_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// The indices of a PositionsSpec.
struct Tuples {
  const void* data;
  DType dtype;
  int tuple;
  int64_t length[kMaxRank], step[kMaxRank];
  Fault* fault;
};

__global__ void __launch_bounds__(kThreads)
    FindPositions(Tuples tuples, Strided<2, int64_t> base, int64_t* positions, int64_t count) {
  for (int64_t i = FirstElement(); i < count; i += ElementStep()) {
    int64_t row = base.Locate(i).at[1];
    for (int j = 0; j < tuples.tuple; ++j)
      row += ReadPosition(tuples.data, tuples.dtype, i * tuples.tuple + j, tuples.length[j], true,
                          tuples.fault) *
             tuples.step[j];
    positions[i] = row;
  }
}

void RunPositions(const PositionsSpec& spec, const Execution& execution) {
  const Tensor& indices = execution.inputs[0];
  Tuples tuples{indices.raw_data(), indices.data_type(), spec.tuple(), {}, {}, FaultOf(spec.op())};
  for (int j = 0; j < tuples.tuple; ++j) {
    tuples.length[j] = spec.length(j);
    tuples.step[j] = spec.step(j);
  }
  const int64_t count = spec.count();
  LaunchIndependent(FindPositions, GridFor(count, kThreads), kThreads, StreamOf(execution.device),
                    tuples, Strided<2, int64_t>(spec.base()), execution.out<int64_t>(0), count);
}

Indices PositionsOf(const ScatterFields& spec, const char* op, const Execution& execution) {
  return {execution.in<int64_t>(1), kInt64, spec.count, spec.rows, false, FaultOf(op)};
}

template <class Spec>
size_t Workspace(const Spec& spec) {
  return GroupsWorkspace(spec.count, spec.rows);
}

// ---- forward

template <class U>
__global__ void __launch_bounds__(kThreads)
    ReplaceRows(const U* x, const U* updates, PickGroups groups, int64_t width, U* y,
                int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t row = i / width, end = groups.begins[row + 1];
    y[i] = groups.begins[row] == end ? x[i] : updates[groups.picks[end - 1] * width + i % width];
  }
}

template <class Fold, class T>
__global__ void __launch_bounds__(kThreads)
    JoinRows(const T* x, const T* updates, PickGroups groups, int64_t width, T* y, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t row = i / width, end = groups.begins[row + 1];
    int64_t p = groups.begins[row];
    if (p == end) {
      y[i] = x[i];
      continue;
    }
    auto joined = Fold::Load(x[i]);
    for (; p < end; ++p)
      joined = Fold::Join(joined, Fold::Load(updates[groups.picks[p] * width + i % width]));
    y[i] = Cast<T>(joined);
  }
}

template <class Fold, class T>
void LaunchJoin(const ScatterSpec& spec, const PickGroups& groups, const Execution& execution) {
  const int64_t size = spec.rows * spec.width;
  LaunchIndependent(JoinRows<Fold, T>, GridFor(size, kThreads), kThreads,
                    StreamOf(execution.device), execution.in<T>(0), execution.in<T>(2), groups,
                    spec.width, execution.out<T>(0), size);
}

void RunScatter(const ScatterSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t size = spec.rows * spec.width;
  const Indices positions = PositionsOf(spec, spec.op(), execution);
  if (size == 0) return CheckIndices(positions, stream);
  const PickGroups groups = QueueGroups(positions, spec.rows, execution.workspace, stream);
  if (spec.reduction == ScatterReduction::kNone)
    return SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
      LaunchIndependent(ReplaceRows<U>, GridFor(size, kThreads), kThreads, stream,
                        execution.in<U>(0), execution.in<U>(2), groups, spec.width,
                        execution.out<U>(0), size);
    });
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      switch (spec.reduction) {
        case ScatterReduction::kAdd:
          return LaunchJoin<formula::SumFold<T>, T>(spec, groups, execution);
        case ScatterReduction::kMul:
          return LaunchJoin<formula::ProdFold<T>, T>(spec, groups, execution);
        case ScatterReduction::kMax:
          return LaunchJoin<formula::MaxFold<T>, T>(spec, groups, execution);
        default:
          return LaunchJoin<formula::MinFold<T>, T>(spec, groups, execution);
      }
    }
  });
}

// ---- backward

/// The gradient of an addition, or, with `replaces`, of the last update of each row alone. Zero is
/// all zero bits in every float type.
template <class U>
__global__ void __launch_bounds__(kThreads)
    PassGradient(const U* dy, PickGroups groups, int64_t width, bool replaces, U* dx, U* dupdates,
                 int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t row = i / width, end = groups.begins[row + 1];
    for (int64_t p = groups.begins[row]; p < end; ++p)
      dupdates[groups.picks[p] * width + i % width] = replaces && p + 1 < end ? U(0) : dy[i];
    dx[i] = replaces && groups.begins[row] < end ? U(0) : dy[i];
  }
}

/// Of products, maxima and minima. y is null for a product.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ShareGradient(const T* dy, const T* x, const T* updates, const T* y, PickGroups groups,
                  int64_t width, T* dx, T* dupdates, int64_t size) {
  using C = ComputeType<T>;
  const auto wide = [](T value) { return static_cast<double>(Cast<C>(value)); };
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const int64_t row = i / width, begin = groups.begins[row], end = groups.begins[row + 1];
    if (begin == end) {
      dx[i] = dy[i];
      continue;
    }
    formula::JoinedGradient joined{!y, wide(dy[i]), y ? wide(y[i]) : 0};
    joined.Add(wide(x[i]));
    for (int64_t p = begin; p < end; ++p)
      joined.Add(wide(updates[groups.picks[p] * width + i % width]));
    dx[i] = Cast<T>(joined.Of(wide(x[i])));
    for (int64_t p = begin; p < end; ++p) {
      const int64_t at = groups.picks[p] * width + i % width;
      dupdates[at] = Cast<T>(joined.Of(wide(updates[at])));
    }
  }
}

void RunScatterBackward(const ScatterBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t size = spec.rows * spec.width;
  const Indices positions = PositionsOf(spec, spec.op(), execution);
  if (size == 0) return CheckIndices(positions, stream);
  const PickGroups groups = QueueGroups(positions, spec.rows, execution.workspace, stream);
  const dim3 grid = GridFor(size, kThreads);
  if (!spec.needs_x())
    return SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
      LaunchIndependent(PassGradient<U>, grid, kThreads, stream, execution.in<U>(0), groups,
                        spec.width, spec.reduction == ScatterReduction::kNone, execution.out<U>(0),
                        execution.out<U>(1), size);
    });
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(ShareGradient<T>, grid, kThreads, stream, execution.in<T>(0),
                      execution.in<T>(2), execution.in<T>(3),
                      spec.needs_y() ? execution.in<T>(4) : nullptr, groups, spec.width,
                      execution.out<T>(0), execution.out<T>(1), size);
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<PositionsSpec, RunPositions>();
  RegisterKernels<ScatterSpec, RunScatter, Workspace<ScatterSpec>>();
  RegisterKernels<ScatterBackwardSpec, RunScatterBackward, Workspace<ScatterBackwardSpec>>();
}

}  // namespace singa::cuda
