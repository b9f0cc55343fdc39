// bn(conv(x, W) + b) = factor · (conv(x, W) + b − mean) + bias
//                   = conv(x, factor · W) + (factor · (b − mean) + bias)
// with factor = scale / √(var + epsilon) for each output channel.

#include <algorithm>
#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

template <class S>
struct Statistics {
  const S* scale;  ///< null: 1
  const S* bias;   ///< null: 0
  const S* mean;
  const S* var;
  double epsilon;
  __device__ double Factor(int64_t c) const {
    return static_cast<double>(scale ? scale[c] : S(1)) /
           std::sqrt(static_cast<double>(var[c]) + epsilon);
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    FoldFilters(const T* from, const T* b, Statistics<ComputeType<T>> statistics, int64_t filters,
                int64_t length, T* to, T* to_b) {
  const int64_t size = filters * length;
  for (int64_t i = FirstElement(); i < size; i += ElementStep())
    to[i] =
        Cast<T>(statistics.Factor(i / length) * static_cast<double>(Cast<ComputeType<T>>(from[i])));
  for (int64_t c = FirstElement(); c < filters; c += ElementStep()) {
    const double own = b ? static_cast<double>(Cast<ComputeType<T>>(b[c])) : 0;
    const double bias = statistics.bias ? static_cast<double>(statistics.bias[c]) : 0;
    to_b[c] =
        Cast<T>(statistics.Factor(c) * (own - static_cast<double>(statistics.mean[c])) + bias);
  }
}

void Run(const FoldBatchNormSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using S = ComputeType<T>;
    LaunchIndependent(
        FoldFilters<T>, GridFor(std::max(spec.filters * spec.length, spec.filters), kThreads),
        kThreads, StreamOf(execution.device), execution.in<T>(0), execution.in_or_null<T>(1),
        Statistics<S>{execution.in_or_null<S>(2), execution.in_or_null<S>(3), execution.in<S>(4),
                      execution.in<S>(5), spec.epsilon},
        spec.filters, spec.length, execution.out<T>(0), execution.out<T>(1));
  });
}

}  // namespace

SINGA_KERNELS(cuda) { RegisterKernels<FoldBatchNormSpec, Run>(); }

}  // namespace singa::cuda
