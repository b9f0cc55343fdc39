#include <cmath>

#include "backend/reference/reduce_fold.h"
#include "backend/reference/register.h"
#include "model/operation/kernel.h"
#include "model/operation/reduce_spec.h"

namespace singa::reference {

namespace {

// The axes of a tensor in two groups, with the strides of K arrays over them.
template <int K>
struct AxisGroup {
  Shape shape;
  std::array<Strides, K> strides;

  void Add(int64_t length, const std::array<int64_t, K>& stride) {
    shape.push_back(length);
    for (int k = 0; k < K; ++k) strides[k].push_back(stride[k]);
  }
  StridedSpace<K> space() const { return {shape, strides}; }
};

bool IsReduced(uint32_t axes, int axis) { return axes >> axis & 1; }

FoldSpace SpaceOf(const Shape& shape, const Strides& strides, uint32_t axes) {
  AxisGroup<2> kept;
  AxisGroup<1> folded;
  int64_t out_stride = 1;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!IsReduced(axes, axis)) out_stride *= shape[axis];
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (IsReduced(axes, axis)) {
      folded.Add(shape[axis], {strides[axis]});
    } else {
      if (shape[axis] > 0) out_stride /= shape[axis];
      kept.Add(shape[axis], {strides[axis], out_stride});
    }
  }
  return {kept.space(), folded.space()};
}

template <class T>
void ReduceTyped(const ReduceSpec& spec, const Execution& execution) {
  const FoldSpace space = SpaceOf(spec.shape, execution.inputs[0].strides(), spec.axes);
  const T* in = execution.in<T>(0);
  void* workspace = execution.workspace;
  const auto count = static_cast<double>(space.folded.size());
  // The result of sums: T for floats, int64 for integers.
  using Sum = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
  Sum* sum = execution.out<Sum>(0);
  const auto store_sum = [&](int64_t i, SumType<T> value) { sum[i] = Convert<Sum>(value); };
  T* out = execution.out<T>(0);
  const auto store = [&](int64_t i, ComputeType<T> value) { out[i] = Convert<T>(value); };
  switch (spec.reduce) {
    case ReduceOp::kSum:
      return FoldAxes<SumFold<T>>(space, in, workspace, store_sum);
    case ReduceOp::kMean:
      return FoldAxes<SumFold<T>>(space, in, workspace, [&](int64_t i, SumType<T> value) {
        sum[i] = Convert<Sum>(static_cast<double>(value) / count);
      });
    case ReduceOp::kL1:
      return FoldAxes<AbsSumFold<T>>(space, in, workspace, store_sum);
    case ReduceOp::kL2:
      return FoldAxes<SquareSumFold<T>>(space, in, workspace, [&](int64_t i, SumType<T> value) {
        sum[i] = Convert<Sum>(std::sqrt(static_cast<double>(value)));
      });
    case ReduceOp::kSumSquare:
      return FoldAxes<SquareSumFold<T>>(space, in, workspace, store_sum);
    case ReduceOp::kProd:
      return FoldAxes<ProdFold<T>>(space, in, workspace, store_sum);
    case ReduceOp::kMax:
      return FoldAxes<MaxFold<T>>(space, in, workspace, store);
    default:
      return FoldAxes<MinFold<T>>(space, in, workspace, store);
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

// ---- backward

constexpr int64_t kChunk = 256;

// dx of n elements of one chunk, where each depends on its own x, dy and y only.
template <class C>
SINGA_MULTI_ISA void BackwardChunk(ReduceOp op, int64_t n, C scale, const C* x, const C* dy,
                                   const C* y, C* dx) {
  switch (op) {
    case ReduceOp::kL1:
      for (int64_t i = 0; i < n; ++i)
        dx[i] = x[i] == x[i] ? dy[i] * static_cast<C>((x[i] > 0) - (x[i] < 0)) : x[i];
      return;
    case ReduceOp::kL2:  // at 0, where the norm has no derivative: 0
      for (int64_t i = 0; i < n; ++i) dx[i] = y[i] == 0 ? C(0) : dy[i] * (x[i] / y[i]);
      return;
    case ReduceOp::kSumSquare:
      for (int64_t i = 0; i < n; ++i) dx[i] = 2 * x[i] * dy[i];
      return;
    default:  // sum, mean
      for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * scale;
  }
}

template <class T>
void BackwardByElement(const ReduceBackwardSpec& spec, const Execution& execution) {
  using C = ComputeType<T>;
  const auto& inputs = execution.inputs;
  const StridedSpace<4> space(spec.shape, {execution.outputs[0].strides(), inputs[0].strides(),
                                           inputs[1].strides(), inputs[2].strides()});
  const bool linear = spec.reduce == ReduceOp::kSum || spec.reduce == ReduceOp::kMean;
  const bool needs_y = spec.reduce == ReduceOp::kL2;
  double count = 1;
  if (spec.reduce == ReduceOp::kMean)
    for (int axis = 0; axis < spec.shape.rank(); ++axis)
      if (IsReduced(spec.axes, axis)) count *= static_cast<double>(spec.shape[axis]);
  const C scale = static_cast<C>(1 / count);
  const T* dy = execution.in<T>(0);
  const T* x = execution.in<T>(1);
  const T* y = execution.in<T>(2);
  T* dx = execution.out<T>(0);
  ParallelFor(space.size(), kParallelGrain, [&](int64_t begin, int64_t end) {
    C dys[kChunk], xs[kChunk] = {}, ys[kChunk] = {}, dxs[kChunk];
    space.Walk(begin, end, [&](const auto& offset, int64_t n) {
      if (linear && space.inner_stride(1) == 0 && space.inner_stride(0) == 1) {
        std::fill_n(dx + offset[0], n, Convert<T>(Convert<C>(dy[offset[1]]) * scale));
        return;
      }
      for (int64_t at = 0; at < n; at += kChunk) {
        const int64_t m = std::min(kChunk, n - at);
        const auto load = [&](int k, const T* source, C* buffer) {
          const int64_t stride = space.inner_stride(k);
          LoadStrided(source + offset[k] + at * stride, stride, m, buffer);
        };
        load(1, dy, dys);
        if (!linear) load(2, x, xs);
        if (needs_y) load(3, y, ys);
        BackwardChunk(spec.reduce, m, scale, xs, dys, ys, dxs);
        StoreStrided(dxs, m, dx + offset[0] + at * space.inner_stride(0), space.inner_stride(0));
      }
    });
  });
}

// Max, min, prod: dx depends on all elements that were folded into one result.
template <class T>
void BackwardByResult(const ReduceBackwardSpec& spec, const Execution& execution) {
  const auto& inputs = execution.inputs;
  const std::array<Strides, 4> strides = {execution.outputs[0].strides(), inputs[1].strides(),
                                          inputs[0].strides(), inputs[2].strides()};
  AxisGroup<4> kept;
  AxisGroup<2> folded;
  for (int axis = 0; axis < spec.shape.rank(); ++axis) {
    if (IsReduced(spec.axes, axis)) {
      folded.Add(spec.shape[axis], {strides[0][axis], strides[1][axis]});
    } else {
      kept.Add(spec.shape[axis],
               {strides[0][axis], strides[1][axis], strides[2][axis], strides[3][axis]});
    }
  }
  const StridedSpace<4> results = kept.space();
  const StridedSpace<2> elements = folded.space();
  // visit(x, dx) for each element of one result.
  const auto for_each = [&](const T* x, T* dx, const auto& visit) {
    const int64_t dx_stride = elements.inner_stride(0);
    const int64_t x_stride = elements.inner_stride(1);
    elements.Walk(0, elements.size(), [&](const auto& offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i)
        visit(static_cast<double>(static_cast<ComputeType<T>>(x[offset[1] + i * x_stride])),
              dx[offset[0] + i * dx_stride]);
    });
  };
  const auto one_result = [&](const T* x, T* dx, double dy, double y) {
    if (spec.reduce == ReduceOp::kProd) {
      // The product of the others: with no zero among the elements prod / x; with one, only that
      // one has a gradient; with two, none has.
      int64_t zeros = 0;
      double product = dy;
      for_each(x, dx, [&](double value, T&) {
        if (value == 0) {
          ++zeros;
        } else {
          product *= value;
        }
      });
      for_each(x, dx, [&](double value, T& out) {
        double gradient = 0;
        if (zeros == 0) gradient = product / value;
        if (zeros == 1 && value == 0) gradient = product;
        out = Convert<T>(static_cast<ComputeType<T>>(gradient));
      });
      return;
    }
    const auto chosen = [y](double value) { return value == y || (y != y && value != value); };
    int64_t ties = 0;
    for_each(x, dx, [&](double value, T&) { ties += chosen(value); });
    const double share = dy / static_cast<double>(ties);
    for_each(x, dx, [&](double value, T& out) {
      out = Convert<T>(static_cast<ComputeType<T>>(chosen(value) ? share : 0));
    });
  };
  const T* dy = execution.in<T>(0);
  const T* x = execution.in<T>(1);
  const T* y = execution.in<T>(2);
  T* dx = execution.out<T>(0);
  const int64_t grain = kParallelGrain / 4 / std::max<int64_t>(1, elements.size());
  ParallelFor(results.size(), grain, [&](int64_t begin, int64_t end) {
    results.Walk(begin, end, [&](const auto& offset, int64_t n) {
      for (int64_t i = 0; i < n; ++i) {
        const auto at = [&](int k) { return offset[k] + i * results.inner_stride(k); };
        one_result(x + at(1), dx + at(0), static_cast<ComputeType<T>>(dy[at(2)]),
                   static_cast<ComputeType<T>>(y[at(3)]));
      }
    });
  });
}

void RunReduceBackward(const ReduceBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    switch (spec.reduce) {
      case ReduceOp::kMax:
      case ReduceOp::kMin:
      case ReduceOp::kProd:
        return BackwardByResult<T>(spec, execution);
      default:
        return BackwardByElement<T>(spec, execution);
    }
  });
}

// ---- positions

// First position of the winner of n elements.
template <class Fold, class T>
int64_t ArgOfRun(const T* p, int64_t n, int64_t stride) {
  const auto best = FoldRun<Fold>(p, n, stride);
  for (int64_t i = 0; i < n; ++i) {
    const auto value = Fold::Load(p[i * stride]);
    if (value == best || value != value) return i;
  }
  return 0;
}

// Likewise for each of `columns` columns of n rows.
template <class Fold, class T>
SINGA_MULTI_ISA void ArgOfRows(const T* p, int64_t n, int64_t row_stride, int64_t columns,
                               int64_t stride, typename Fold::Acc* best, int64_t* position) {
  for (int64_t j = 0; j < columns; ++j) {
    best[j] = Fold::Load(p[j * stride]);
    position[j] = 0;
  }
  for (int64_t i = 1; i < n; ++i) {
    const T* row = p + i * row_stride;
    for (int64_t j = 0; j < columns; ++j) {
      const auto value = Fold::Load(row[j * stride]);
      const bool wins = Fold::Beats(value, best[j]) || (value != value && best[j] == best[j]);
      best[j] = wins ? value : best[j];
      position[j] = wins ? i : position[j];
    }
  }
}

template <class Fold, class T>
void ArgReduceTyped(const ArgReduceSpec& spec, const Execution& execution) {
  const FoldSpace space =
      SpaceOf(spec.shape, execution.inputs[0].strides(), uint32_t{1} << spec.axis);
  const T* in = execution.in<T>(0);
  int64_t* out = execution.out<int64_t>(0);
  const int64_t length = spec.shape[spec.axis];
  const int64_t step = execution.inputs[0].strides()[spec.axis];
  const bool by_runs = space.by_runs();
  const int64_t in_stride = space.kept.inner_stride(0);
  const int64_t out_stride = space.kept.inner_stride(1);
  ParallelFor(space.kept.size(), kParallelGrain / length, [&](int64_t begin, int64_t end) {
    typename Fold::Acc best[kChunk];
    int64_t position[kChunk];
    space.kept.Walk(begin, end, [&](const auto& offset, int64_t n) {
      for (int64_t at = 0; at < n; at += kChunk) {
        const int64_t m = std::min(kChunk, n - at);
        const T* p = in + offset[0] + at * in_stride;
        if (by_runs) {
          for (int64_t j = 0; j < m; ++j)
            position[j] = ArgOfRun<Fold>(p + j * in_stride, length, step);
        } else {
          ArgOfRows<Fold>(p, length, step, m, in_stride, best, position);
        }
        StoreStrided(position, m, out + offset[1] + at * out_stride, out_stride);
      }
    });
  });
}

void RunArgReduce(const ArgReduceSpec& spec, const Execution& execution) {
  SwitchNumber(spec.dtype, spec.op(), [&]<class T>() {
    if (spec.largest) {
      ArgReduceTyped<MaxFold<T>, T>(spec, execution);
    } else {
      ArgReduceTyped<MinFold<T>, T>(spec, execution);
    }
  });
}

template <class T, class Label>
int64_t CountTopKTyped(const CountTopKSpec& spec, const T* scores, const Label* labels) {
  for (int64_t row = 0; row < spec.rows; ++row)
    Check<std::out_of_range>(labels[row] >= 0 && labels[row] < spec.classes, spec.op(), "label ",
                             labels[row], " of row ", row, " is outside [0, ", spec.classes, ")");
  const auto count = [&](int64_t begin, int64_t end) {
    int64_t hits = 0;
    for (int64_t row = begin; row < end; ++row) {
      const T* score = scores + row * spec.classes;
      const auto own = static_cast<ComputeType<T>>(score[labels[row]]);
      int64_t above = 0;
      for (int64_t i = 0; i < spec.classes; ++i)
        above += static_cast<ComputeType<T>>(score[i]) > own;
      hits += own == own && above < spec.k;
    }
    return hits;
  };
  return ParallelReduce(spec.rows, kParallelGrain / std::max<int64_t>(1, spec.classes), int64_t{0},
                        count, [](int64_t a, int64_t b) { return a + b; });
}

void RunCountTopK(const CountTopKSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    SwitchIndex(spec.label_dtype, spec.op(), [&]<class Label>() {
      *execution.out<int64_t>(0) = CountTopKTyped(spec, execution.in<T>(0), execution.in<Label>(1));
    });
  });
}

}  // namespace

void RegisterReduce() {
  RegisterReference<ReduceSpec, RunReduce, ReduceWorkspace>();
  RegisterReference<ReduceBackwardSpec, RunReduceBackward>();
  RegisterReference<ArgReduceSpec, RunArgReduce>();
  RegisterReference<CountTopKSpec, RunCountTopK>();
}

}  // namespace singa::reference
