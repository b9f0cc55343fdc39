// bn(conv(x, W) + b) = factor · (conv(x, W) + b − mean) + bias = conv(x, factor · W) +
// (factor · (b − mean) + bias), with factor = scale / √(var + epsilon) of each output channel.

#include <algorithm>
#include <cmath>

#include "backend/reference/register.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "model/operation/batchnorm_spec.h"
#include "model/operation/kernel.h"

namespace singa::reference {
namespace {

template <class T>
double ValueOr(const Execution& execution, size_t input, int64_t i, double otherwise) {
  return execution.inputs[input].empty() ? otherwise : Convert<double>(execution.in<T>(input)[i]);
}

template <class T>
void Fold(const FoldBatchNormSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const T* from = execution.in<T>(0);
  T* to = execution.out<T>(0);
  const int64_t grain = kParallelGrain / std::max<int64_t>(spec.length, 1) + 1;
  ParallelFor(spec.filters, grain, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const double factor = ValueOr<S>(execution, 2, c, 1) /
                            std::sqrt(static_cast<double>(execution.in<S>(5)[c]) + spec.epsilon);
      for (int64_t i = c * spec.length; i < (c + 1) * spec.length; ++i)
        to[i] = Convert<T>(factor * Convert<double>(from[i]));
      const double centred = ValueOr<T>(execution, 1, c, 0) - execution.in<S>(4)[c];
      execution.out<T>(1)[c] = Convert<T>(factor * centred + ValueOr<S>(execution, 3, c, 0));
    }
  });
}

void Run(const FoldBatchNormSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Fold<T>(spec, execution); });
}

}  // namespace

void RegisterFoldBatchNorm() { RegisterReference<FoldBatchNormSpec, Run>(); }

}  // namespace singa::reference
