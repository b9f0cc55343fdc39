// y = x · s, with one number per channel. Sums are in double.

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/channel_scale/spec.h"

namespace singa::reference {
namespace {

/// The position in s of the factor of plane p, which is one channel of one image.
int64_t FactorOf(const ChannelScaleSpec& spec, int64_t p) {
  return spec.per_image ? p : p % spec.shape[1];
}

void RunForward(const ChannelScaleSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const T *x = execution.in<T>(0), *s = execution.in<T>(1);
    T* y = execution.out<T>(0);
    const int64_t pixels = spec.pixels();
    ParallelFor(spec.shape[0] * spec.shape[1], kParallelGrain / (pixels + 1) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t i = begin * pixels; i < end * pixels; ++i)
                    y[i] = Convert<T>(Convert<C>(x[i]) * Convert<C>(s[FactorOf(spec, i / pixels)]));
                });
  });
}

/// dx = dy · s, ds = Σ dy · x
void RunBackward(const ChannelScaleBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const T *dy = execution.in<T>(0), *x = execution.in<T>(1), *s = execution.in<T>(2);
    const int64_t pixels = spec.pixels(), planes = spec.shape[0] * spec.shape[1];
    const int64_t factors = spec.s_shape().Count();
    ParallelFor(factors, kParallelGrain / (planes / factors * pixels + 1) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t f = begin; f < end; ++f) {
                    double sum = 0;
                    for (int64_t p = f; p < planes; p += factors)
                      for (int64_t i = p * pixels; i < (p + 1) * pixels; ++i) {
                        sum += Convert<double>(dy[i]) * Convert<double>(x[i]);
                        if (spec.need_x)
                          execution.out<T>(0)[i] = Convert<T>(Convert<C>(dy[i]) * Convert<C>(s[f]));
                      }
                    if (spec.need_s) execution.out<T>(1)[f] = Convert<T>(sum);
                  }
                });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<ChannelScaleSpec, RunForward>();
  RegisterReference<ChannelScaleBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
