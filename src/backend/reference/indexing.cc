#include <cstddef>
#include <cstring>

#include "backend/reference/indices.h"
#include "backend/reference/register.h"
#include "core/copy.h"
#include "core/parallel.h"
#include "core/strided.h"
#include "model/operation/indexing_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {

namespace {

void RunConcat(const ConcatSpec& spec, const Execution& execution) {
  const Tensor& y = execution.outputs[0];
  int64_t start = 0;
  for (const Tensor& x : execution.inputs) {
    const int64_t end = start + x.shape()[spec.axis];
    StridedCopy(x, y.SliceAxis(spec.axis, start, end));
    start = end;
  }
}

void RunSplit(const SplitSpec& spec, const Execution& execution) {
  const Tensor& x = execution.inputs[0];
  StridedCopy(x.SliceAxis(spec.axis, spec.start, spec.start + spec.length), execution.outputs[0]);
}

void RunSliceBackward(const SliceBackwardSpec& spec, const Execution& execution) {
  const Tensor& dy = execution.inputs[0];
  const Tensor& dx = execution.outputs[0];
  StridedFill(dx, 0);
  StridedCopy(
      dy, Tensor(dx.block(), dy.shape(), spec.strides, dx.offset() + spec.offset, dx.data_type()));
}

// ---- ScatterElements

// The pairs (place among the indices, place in x) of a scatter: lines along the axis, of which no
// two meet in x, so that only the order within a line matters.
class ScatterLines {
 public:
  template <class Spec>
  explicit ScatterLines(const Spec& spec)
      : length_(spec.index_shape[spec.axis]),
        index_step_(ContiguousStrides(spec.index_shape)[spec.axis]),
        x_step_(ContiguousStrides(spec.x_shape)[spec.axis]),
        lines_(Lines(spec.index_shape, spec.x_shape, spec.axis)) {}

  /// Calls visit(i, base, k): place among the indices, place in x of the line's position 0, and
  /// number along the line; each line in order, lines on several threads.
  template <class Visit>
  void ForEach(const Visit& visit) const {
    const int64_t index_stride = lines_.inner_stride(0);
    const int64_t x_stride = lines_.inner_stride(1);
    const auto lines = [&](const auto& offset, int64_t n) {
      const auto at = [&](int64_t i, int64_t k) {
        visit(offset[0] + i * index_stride + k * index_step_, offset[1] + i * x_stride, k);
      };
      if (index_step_ <= index_stride) {  // whichever way the indices lie in memory
        for (int64_t i = 0; i < n; ++i)
          for (int64_t k = 0; k < length_; ++k) at(i, k);
      } else {
        for (int64_t k = 0; k < length_; ++k)
          for (int64_t i = 0; i < n; ++i) at(i, k);
      }
    };
    ParallelFor(lines_.size(), kParallelGrain / 4 / std::max<int64_t>(1, length_),
                [&](int64_t begin, int64_t end) { lines_.Walk(begin, end, lines); });
  }
  int64_t x_step() const { return x_step_; }

 private:
  static StridedSpace<2> Lines(const Shape& index_shape, const Shape& x_shape, int axis) {
    Shape shape = index_shape;
    shape[axis] = 1;
    return {shape, {ContiguousStrides(index_shape), ContiguousStrides(x_shape)}};
  }

  int64_t length_, index_step_, x_step_;
  StridedSpace<2> lines_;
};

void RunScatterElements(const ScatterElementsSpec& spec, const Execution& execution) {
  auto* positions = static_cast<int64_t*>(execution.workspace);
  ReadPositions(spec.op(), execution.inputs[1], spec.x_shape[spec.axis], true, positions);
  StridedCopy(execution.inputs[0], execution.outputs[0]);
  const ScatterLines lines(spec);
  const int64_t step = lines.x_step();
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
    const U* updates = execution.in<U>(2);
    U* y = execution.out<U>(0);
    lines.ForEach(
        [=](int64_t i, int64_t base, int64_t) { y[base + positions[i] * step] = updates[i]; });
  });
}

size_t ScatterElementsWorkspace(const ScatterElementsSpec& spec) {
  return static_cast<size_t>(spec.index_shape.Count()) * sizeof(int64_t);
}

// Where several updates went to one element, the last has its gradient and the others zero.
void RunScatterElementsBackward(const ScatterElementsBackwardSpec& spec,
                                const Execution& execution) {
  auto* positions = static_cast<int64_t*>(execution.workspace);
  int64_t* last = positions + spec.index_shape.Count();  // set only where something is scattered
  ReadPositions(spec.op(), execution.inputs[1], spec.x_shape[spec.axis], true, positions);
  StridedCopy(execution.inputs[0], execution.outputs[0]);
  const ScatterLines lines(spec);
  const int64_t step = lines.x_step();
  lines.ForEach([=](int64_t i, int64_t base, int64_t k) { last[base + positions[i] * step] = k; });
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
    const U* dy = execution.in<U>(0);
    U* dx = execution.out<U>(0);
    U* dupdates = execution.out<U>(1);
    lines.ForEach([=](int64_t i, int64_t base, int64_t k) {
      const int64_t to = base + positions[i] * step;
      dupdates[i] = last[to] == k ? dy[to] : U(0);  // all float types have zero as zero bits
      dx[to] = U(0);
    });
  });
}

size_t ScatterElementsBackwardWorkspace(const ScatterElementsBackwardSpec& spec) {
  return static_cast<size_t>(spec.index_shape.Count() + spec.x_shape.Count()) * sizeof(int64_t);
}

// ---- OneHot

void RunOneHot(const OneHotSpec& spec, const Execution& execution) {
  StridedFill(execution.outputs[0], execution.scalars.v[0]);
  std::byte bytes[8];
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T value = Convert<T>(execution.scalars.v[1]);
    std::memcpy(bytes, &value, sizeof(T));
  });
  // The loop is compiled for each type of the indices: for sizes of elements, not also for types.
  SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
    U on;
    std::memcpy(&on, bytes, sizeof(U));
    U* y = execution.out<U>(0);
    ForEachIndexValue(spec.op(), execution.inputs[0], [&](int64_t i, int64_t value) {
      if (value < 0) value += spec.depth;
      if (value < 0 || value >= spec.depth) return;
      const int64_t outer = i / spec.inner;
      y[(outer * spec.depth + value) * spec.inner + i % spec.inner] = on;
    });
  });
}

// ---- NonZero

void RunCountNonZero(const CountNonZeroSpec& spec, const Execution& execution) {
  const int64_t size = execution.inputs[0].size();
  int64_t* counts = execution.out<int64_t>(0);
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T* x = execution.in<T>(0);
    ParallelFor(execution.outputs[0].size(), 1, [&](int64_t first, int64_t last) {
      for (int64_t piece = first; piece < last; ++piece) {
        const int64_t end = std::min(size, (piece + 1) * kNonZeroPiece);
        int64_t count = 0;
        for (int64_t i = piece * kNonZeroPiece; i < end; ++i) count += Convert<bool>(x[i]);
        counts[piece] = count;
      }
    });
  });
}

void RunNonZero(const NonZeroSpec& spec, const Execution& execution) {
  const Shape& shape = execution.inputs[0].shape();
  const int64_t size = execution.inputs[0].size();
  const int64_t* before = execution.in<int64_t>(1);
  const int64_t total = execution.outputs[0].shape()[1];
  int64_t* y = execution.out<int64_t>(0);
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T* x = execution.in<T>(0);
    ParallelFor(execution.inputs[1].size(), 1, [&](int64_t first, int64_t last) {
      for (int64_t piece = first; piece < last; ++piece) {
        const int64_t end = std::min(size, (piece + 1) * kNonZeroPiece);
        int64_t column = before[piece];
        for (int64_t i = piece * kNonZeroPiece; i < end; ++i) {
          if (!Convert<bool>(x[i])) continue;
          int64_t rest = i;
          for (int axis = shape.rank() - 1; axis >= 0; --axis) {
            y[axis * total + column] = rest % shape[axis];
            rest /= shape[axis];
          }
          ++column;
        }
      }
    });
  });
}

}  // namespace

void RegisterIndexing() {
  RegisterReference<ConcatSpec, RunConcat>();
  RegisterReference<SplitSpec, RunSplit>();
  RegisterReference<SliceBackwardSpec, RunSliceBackward>();
  RegisterReference<ScatterElementsSpec, RunScatterElements, ScatterElementsWorkspace>();
  RegisterReference<ScatterElementsBackwardSpec, RunScatterElementsBackward,
                    ScatterElementsBackwardWorkspace>();
  RegisterReference<OneHotSpec, RunOneHot>();
  RegisterReference<CountNonZeroSpec, RunCountNonZero>();
  RegisterReference<NonZeroSpec, RunNonZero>();
}

}  // namespace singa::reference
