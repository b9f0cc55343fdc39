#include <algorithm>
#include <array>

#include "backend/reference/reduce/axes.h"
#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/reduction.h"
#include "model/operation/reduce/spec.h"

namespace singa::reference {

namespace {

constexpr int64_t kChunk = 256;

// dx of n elements of a chunk, for reductions where each depends only on its own x, dy and y.
template <class C>
SINGA_MULTI_ISA void BackwardChunk(ReduceOp op, int64_t n, C scale, const C* x, const C* dy,
                                   const C* y, C* dx) {
  switch (op) {
    case ReduceOp::kL1:
      for (int64_t i = 0; i < n; ++i)
        dx[i] = x[i] == x[i] ? dy[i] * static_cast<C>((x[i] > 0) - (x[i] < 0)) : x[i];
      return;
    case ReduceOp::kL2:  // 0 at y = 0, where the norm has no derivative
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

// Max, min, prod: dx depends on all elements that were folded into a result.
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
  // Calls visit(x, dx) for each element of one result.
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
    formula::JoinedGradient joined{spec.reduce == ReduceOp::kProd, dy, y};
    for_each(x, dx, [&](double value, T&) { joined.Add(value); });
    for_each(x, dx, [&](double value, T& out) {
      out = Convert<T>(static_cast<ComputeType<T>>(joined.Of(value)));
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

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<ReduceBackwardSpec, RunReduceBackward>(); }

}  // namespace singa::reference
