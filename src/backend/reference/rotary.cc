// Rotary position embedding, row by row. 16-bit floats are computed in float32.

#include <algorithm>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/attention/arguments.h"
#include "model/operation/attention/rotary_spec.h"

namespace singa::reference {
namespace {

/// Turns the pairs (i, i + pairs); `sign` -1 turns back.
template <class T, class C>
SINGA_MULTI_ISA void TurnHalves(const T* x, const C* cos, const C* sin, C sign, int64_t pairs,
                                T* y) {
  const T* other = x + pairs;
  T* to = y + pairs;
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const C a = Convert<C>(x[i]), b = Convert<C>(other[i]), s = sign * sin[i];
    y[i] = Convert<T>(a * cos[i] - b * s);
    to[i] = Convert<T>(a * s + b * cos[i]);
  }
}

/// Turns the pairs (2i, 2i + 1).
template <class T, class C>
SINGA_MULTI_ISA void TurnNeighbours(const T* x, const C* cos, const C* sin, C sign, int64_t pairs,
                                    T* y) {
#pragma GCC ivdep
  for (int64_t i = 0; i < pairs; ++i) {
    const C a = Convert<C>(x[2 * i]), b = Convert<C>(x[2 * i + 1]), s = sign * sin[i];
    y[2 * i] = Convert<T>(a * cos[i] - b * s);
    y[2 * i + 1] = Convert<T>(a * s + b * cos[i]);
  }
}

/// A table (B, N, R / 2).
template <class C>
struct Table {
  explicit Table(const Tensor& t)
      : data(static_cast<const C*>(t.raw_data())), batch(t.strides()[0]), row(t.strides()[1]) {}
  const C* At(int64_t b, int64_t i) const { return data + b * batch + i * row; }
  const C* data;
  int64_t batch, row;  ///< strides
};

template <class T>
void Turn(const RotarySpec& spec, const Execution& execution, ComputeType<T> sign) {
  using C = ComputeType<T>;
  const AttentionRows<const T> x(execution.inputs[0]);
  const Table<C> cos(execution.inputs[1]), sin(execution.inputs[2]);
  const AttentionRows<T> y(execution.outputs[0]);
  const int64_t turned = 2 * spec.pairs;
  // Rows in the order of positions: heads that were split off an axis lie side by side, and share
  // the row of the tables.
  ParallelFor(spec.batch * spec.length * spec.heads, kParallelGrain / 2 / (spec.dim + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t row = begin; row < end; ++row) {
                  const int64_t h = row % spec.heads, i = row / spec.heads % spec.length;
                  const int64_t b = row / spec.heads / spec.length;
                  const T* from = x.At(b, h, i);
                  T* to = y.At(b, h, i);
                  if (spec.interleaved) {
                    TurnNeighbours(from, cos.At(b, i), sin.At(b, i), sign, spec.pairs, to);
                  } else {
                    TurnHalves(from, cos.At(b, i), sin.At(b, i), sign, spec.pairs, to);
                  }
                  std::copy(from + turned, from + spec.dim, to + turned);
                }
              });
}

void RunForward(const RotarySpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Turn<T>(spec, execution, 1); });
}
void RunBackward(const RotaryBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Turn<T>(spec, execution, -1); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<RotarySpec, RunForward>();
  RegisterReference<RotaryBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
