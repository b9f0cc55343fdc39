#include <cmath>

#include "backend/reference/reduce/fold.h"
#include "model/dispatch/kernel.h"
#include "model/operation/reduce/spec.h"

namespace singa::reference {

namespace {

template <class T>
void ReduceTyped(const ReduceSpec& spec, const Execution& execution) {
  const FoldSpace space = SpaceOf(spec.shape, execution.inputs[0].strides(), spec.axes);
  const T* in = execution.in<T>(0);
  void* workspace = execution.workspace;
  const auto count = static_cast<double>(space.folded.size());
  // The type of sums: T for floats, int64 for integers.
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  Sum* sum = execution.out<Sum>(0);
  // One function for all reductions, because each further one would compile the folding again.
  const auto store_sum = [&, reduce = spec.reduce](int64_t i, SumType<T> value) {
    if (reduce == ReduceOp::kMean) {
      sum[i] = Convert<Sum>(static_cast<double>(value) / count);
    } else if (reduce == ReduceOp::kL2) {
      sum[i] = Convert<Sum>(std::sqrt(static_cast<double>(value)));
    } else {
      sum[i] = Convert<Sum>(value);
    }
  };
  T* out = execution.out<T>(0);
  const auto store = [&](int64_t i, ComputeType<T> value) { out[i] = Convert<T>(value); };
  using Sums = FoldLoops<T, SumType<T>>;
  using Values = FoldLoops<T, ComputeType<T>>;
  const auto fold_sum = [&](const Sums& fold) { FoldAxes(fold, space, in, workspace, store_sum); };
  const auto fold_values = [&](const Values& fold) { FoldAxes(fold, space, in, workspace, store); };
  switch (spec.reduce) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return fold_sum(Sums::template For<SumFold<T>>());
    case ReduceOp::kL1:
      return fold_sum(Sums::template For<AbsSumFold<T>>());
    case ReduceOp::kL2:
    case ReduceOp::kSumSquare:
      return fold_sum(Sums::template For<SquareSumFold<T>>());
    case ReduceOp::kProd:
      return fold_sum(Sums::template For<ProdFold<T>>());
    case ReduceOp::kMax:
      return fold_values(Values::template For<MaxFold<T>>());
    default:
      return fold_values(Values::template For<MinFold<T>>());
  }
}

void RunReduce(const ReduceSpec& spec, const Execution& execution) {
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() { ReduceTyped<T>(spec, execution); });
}

size_t ReduceWorkspace(const ReduceSpec& spec) {
  int64_t kept = 1, folded = 1;
  for (int axis = 0; axis < spec.shape.rank(); ++axis)
    (IsReduced(spec.axes, axis) ? folded : kept) *= spec.shape[axis];
  return FoldWorkspace(kept, folded);
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<ReduceSpec, RunReduce, ReduceWorkspace>(); }

}  // namespace singa::reference
