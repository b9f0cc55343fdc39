// Rotary position embedding. A thread turns a pair of features, or copies one of the features
// behind the pairs. The sine's sign makes forward or backward.

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/attention/arguments.h"
#include "model/operation/attention/rotary_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// A table (B, N, R / 2).
template <class C>
struct Table {
  const C* data;
  int64_t batch, row;  ///< strides

  explicit Table(const Tensor& t)
      : data(static_cast<const C*>(t.raw_data())), batch(t.strides()[0]), row(t.strides()[1]) {}
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    Turn(AttentionRows<const T> x, Table<ComputeType<T>> cos, Table<ComputeType<T>> sin,
         AttentionRows<T> y, RotarySpec spec, ComputeType<T> sign, int64_t size) {
  using C = ComputeType<T>;
  const int64_t units = spec.dim - spec.pairs;  // of a row
  for (int64_t n = FirstElement(); n < size; n += ElementStep()) {
    const int64_t unit = n % units, row = n / units;
    const int64_t h = row % spec.heads, i = row / spec.heads % spec.length;
    const int64_t b = row / spec.heads / spec.length;
    const T* from = x.At(b, h, i);
    T* to = y.At(b, h, i);
    if (unit >= spec.pairs) {
      to[unit + spec.pairs] = from[unit + spec.pairs];
      continue;
    }
    const int64_t first = spec.interleaved ? 2 * unit : unit;
    const int64_t second = spec.interleaved ? 2 * unit + 1 : unit + spec.pairs;
    const C a = Cast<C>(from[first]), c = Cast<C>(from[second]);
    const C cosine = cos.data[b * cos.batch + i * cos.row + unit];
    const C sine = sign * sin.data[b * sin.batch + i * sin.row + unit];
    to[first] = Cast<T>(a * cosine - c * sine);
    to[second] = Cast<T>(a * sine + c * cosine);
  }
}

void Run(const RotarySpec& spec, const char* op, const Execution& execution, int sign) {
  const int64_t size = spec.batch * spec.heads * spec.length * (spec.dim - spec.pairs);
  if (size == 0) return;
  SwitchFloat(spec.dtype, op, [&]<class T>() {
    using C = ComputeType<T>;
    Launch(Turn<T>, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
           AttentionRows<const T>(execution.inputs[0]), Table<C>(execution.inputs[1]),
           Table<C>(execution.inputs[2]), AttentionRows<T>(execution.outputs[0]), spec,
           static_cast<C>(sign), size);
  });
}

void RunForward(const RotarySpec& spec, const Execution& execution) {
  Run(spec, spec.op(), execution, 1);
}
void RunBackward(const RotaryBackwardSpec& spec, const Execution& execution) {
  Run(spec, spec.op(), execution, -1);
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<RotarySpec, RunForward>();
  RegisterKernels<RotaryBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
