// Layer, group, instance and RMS norm. A statistic takes two passes, the variance around the mean,
// and sums are taken in double.

#include <cmath>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/norm/spec.h"

namespace singa::reference {
namespace {

/// Calls f(element, channel) for each value of one statistic.
template <class F>
void ForValues(const NormGeometry& g, int64_t statistic, const F& f) {
  const int64_t positions = g.positions(), channels = g.group_channels();
  const int64_t group = g.per_position ? statistic / positions : statistic;
  const int64_t first = group % g.groups * channels;  // channel
  const int64_t from = g.per_position ? statistic % positions : 0;
  const int64_t to = g.per_position ? from + 1 : positions;
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t p = from; p < to; ++p) f((group * channels + c) * positions + p, first + c);
}

/// The statistic of an element of channel `c`.
int64_t StatisticOf(const NormGeometry& g, int64_t n, int64_t c, int64_t position) {
  const int64_t group = n * g.groups + c / g.group_channels();
  return g.per_position ? group * g.positions() + position : group;
}

template <class T>
void Forward(const NormForwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  const auto count = static_cast<double>(spec.values());
  ParallelFor(spec.statistics(), kParallelGrain / (spec.values() + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t s = begin; s < end; ++s) {
                  double mean = 0, square = 0;
                  if (spec.centered && count > 0) {
                    ForValues(spec, s, [&](int64_t i, int64_t) { mean += Convert<double>(x[i]); });
                    mean /= count;
                  }
                  ForValues(spec, s, [&](int64_t i, int64_t) {
                    const double d = Convert<double>(x[i]) - mean;
                    square += d * d / count;
                  });
                  const double inv_std = 1 / std::sqrt(square + spec.epsilon);
                  if (spec.centered) execution.out<S>(1)[s] = static_cast<S>(mean);
                  execution.out<S>(2)[s] = static_cast<S>(inv_std);
                  ForValues(spec, s, [&](int64_t i, int64_t c) {
                    y[i] = Convert<T>((Convert<double>(x[i]) - mean) * inv_std *
                                          execution.value_or<S>(1, c, 1) +
                                      execution.value_or<S>(2, c, 0));
                  });
                }
              });
}

// With x̂ = (x − mean) · inv_std, g = dy · scale and means over the values of one statistic:
//   dx = inv_std · (g − mean(g) − x̂ · mean(g · x̂)), without mean(g) where nothing is centered
//   dscale = Σ dy · x̂,  dbias = Σ dy
template <class T>
void Backward(const NormBackwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const T *dy = execution.in<T>(0), *x = execution.in<T>(1);
  const auto mean_of = [&](int64_t s) -> double { return execution.value_or<S>(3, s, 0); };
  const S* inv_stds = execution.in<S>(4);
  if (spec.need_x) {
    T* dx = execution.out<T>(0);
    const auto count = static_cast<double>(spec.values());
    ParallelFor(spec.statistics(), kParallelGrain / (spec.values() + 1) + 1,
                [&](int64_t begin, int64_t end) {
                  for (int64_t s = begin; s < end; ++s) {
                    const double mean = mean_of(s), inv_std = inv_stds[s];
                    const auto xhat = [&](int64_t i) {
                      return (Convert<double>(x[i]) - mean) * inv_std;
                    };
                    const auto gradient = [&](int64_t i, int64_t c) {
                      return Convert<double>(dy[i]) * execution.value_or<S>(2, c, 1);
                    };
                    double sum = 0, product = 0;
                    ForValues(spec, s, [&](int64_t i, int64_t c) {
                      if (spec.centered) sum += gradient(i, c) / count;
                      product += gradient(i, c) * xhat(i) / count;
                    });
                    ForValues(spec, s, [&](int64_t i, int64_t c) {
                      dx[i] = Convert<T>(inv_std * (gradient(i, c) - sum - xhat(i) * product));
                    });
                  }
                });
  }
  if (!spec.need_scale && !spec.need_bias) return;
  const int64_t positions = spec.positions();
  ParallelFor(spec.channels(), kParallelGrain / (spec.shape[0] * positions + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; ++c) {
                  double dscale = 0, dbias = 0;
                  for (int64_t n = 0; n < spec.shape[0]; ++n) {
                    for (int64_t p = 0; p < positions; ++p) {
                      const int64_t i = (n * spec.channels() + c) * positions + p;
                      const int64_t s = StatisticOf(spec, n, c, p);
                      const auto gradient = Convert<double>(dy[i]);
                      dbias += gradient;
                      dscale += gradient * (Convert<double>(x[i]) - mean_of(s)) * inv_stds[s];
                    }
                  }
                  if (spec.need_scale) execution.out<S>(1)[c] = static_cast<S>(dscale);
                  if (spec.need_bias) execution.out<S>(2)[c] = static_cast<S>(dbias);
                }
              });
}

void RunForward(const NormForwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const NormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<NormForwardSpec, RunForward>();
  RegisterReference<NormBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
