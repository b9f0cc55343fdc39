// bn(conv(x, W) + b) = factor · (conv(x, W) + b − mean) + bias
//                   = conv(x, factor · W) + (factor · (b − mean) + bias)
// with factor = scale / √(var + epsilon) for each output channel.

#include <algorithm>
#include <cmath>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::reference {
namespace {

template <class T>
void Fold(const FoldBatchNormSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const T* from = execution.in<T>(0);
  T* to = execution.out<T>(0);
  const int64_t grain = kParallelGrain / std::max<int64_t>(spec.length, 1) + 1;
  ParallelFor(spec.filters, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const double factor = execution.value_or<S>(2, c, 1) /
                            std::sqrt(static_cast<double>(execution.in<S>(5)[c]) + spec.epsilon);
      for (int64_t i = c * spec.length; i < (c + 1) * spec.length; ++i)
        to[i] = Convert<T>(factor * Convert<double>(from[i]));
      const double centred =
          Convert<double>(execution.value_or<T>(1, c, T{})) - execution.in<S>(4)[c];
      execution.out<T>(1)[c] = Convert<T>(factor * centred + execution.value_or<S>(3, c, 0));
    }
  });
}

void Run(const FoldBatchNormSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Fold<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<FoldBatchNormSpec, Run>(); }

}  // namespace singa::reference
