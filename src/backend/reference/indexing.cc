#include <cstddef>
#include <cstring>

#include "backend/reference/indices.h"
#include "core/device/parallel.h"
#include "core/tensor/copy.h"
#include "core/tensor/strided.h"
#include "model/dispatch/kernel.h"
#include "model/operation/indexing/spec.h"

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

// ---- OneHot

void RunOneHot(const OneHotSpec& spec, const Execution& execution) {
  StridedFill(execution.outputs[0], execution.scalars.v[0]);
  std::byte bytes[8];
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T value = Convert<T>(execution.scalars.v[1]);
    std::memcpy(bytes, &value, sizeof(T));
  });
  // Compiled for each index type, so dispatch the value type by its size only.
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

SINGA_KERNELS(reference) {
  RegisterReference<ConcatSpec, RunConcat>();
  RegisterReference<SplitSpec, RunSplit>();
  RegisterReference<SliceBackwardSpec, RunSliceBackward>();
  RegisterReference<OneHotSpec, RunOneHot>();
  RegisterReference<CountNonZeroSpec, RunCountNonZero>();
  RegisterReference<NonZeroSpec, RunNonZero>();
}

}  // namespace singa::reference
