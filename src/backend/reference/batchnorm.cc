// Batch normalisation (Ioffe and Szegedy 2015). Statistics take two passes, with the variance
// around the mean, and accumulate in double, so data with a mean far from zero keeps its variance.
// BatchNormAffine computes y from the statistics. With an activation, backward first multiplies dy
// by its slope and then proceeds as without.

#include <cmath>
#include <type_traits>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/activation.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::reference {
namespace {

template <class T>
SINGA_MULTI_ISA double Sum(const T* x, int64_t n, int64_t stride) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += Convert<double>(x[i * stride]);
  return sum;
}

template <class T>
SINGA_MULTI_ISA double SumSquares(const T* x, int64_t n, int64_t stride, double mean) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const double d = Convert<double>(x[i * stride]) - mean;
    sum += d * d;
  }
  return sum;
}

/// Σ dy · (x − mean)
template <class G, class T>
SINGA_MULTI_ISA double SumProducts(const G* dy, const T* x, int64_t n, int64_t stride,
                                   double mean) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i)
    sum += Convert<double>(dy[i * stride]) * (Convert<double>(x[i * stride]) - mean);
  return sum;
}

/// y = bn(x), plus `add` if it is not null, then the activation.
template <class T, class S>
SINGA_MULTI_ISA void Normalize(const T* x, const T* add, T* y, int64_t n, int64_t stride,
                               const BatchNormAffine<S>& affine, const Activation& activation) {
  const auto low = static_cast<S>(activation.low), high = static_cast<S>(activation.high);
  for (int64_t i = 0; i < n; ++i) {
    S v = affine(Convert<S>(x[i * stride]));
    if (add) v += Convert<S>(add[i * stride]);
    y[i * stride] = Convert<T>(formula::Activated(activation.kind, v, low, high));
  }
}

/// dy (plus dy2, if it is not null) times the slope of the activation at bn(x). That of ReLU
/// follows from the sign of y, if y is not null.
template <class T, class G, class S>
SINGA_MULTI_ISA void ThroughActivation(const T* dy, const T* dy2, const T* x, const T* y, G* result,
                                       int64_t n, int64_t stride, const BatchNormAffine<S>& affine,
                                       const Activation& activation) {
  const auto low = static_cast<S>(activation.low), high = static_cast<S>(activation.high);
  for (int64_t i = 0; i < n; ++i) {
    const S at = y ? Convert<S>(y[i * stride]) : affine(Convert<S>(x[i * stride]));
    S gradient = Convert<S>(dy[i * stride]);
    if (dy2) gradient += Convert<S>(dy2[i * stride]);
    result[i * stride] =
        Convert<G>(formula::ActivatedGradient(activation.kind, gradient, at, low, high));
  }
}

/// dx = a · dy − b − (x − mean) · c
template <class G, class T>
SINGA_MULTI_ISA void Gradient(const G* dy, const T* x, T* dx, int64_t n, int64_t stride,
                              double mean, double a, double b, double c) {
  for (int64_t i = 0; i < n; ++i)
    dx[i * stride] = Convert<T>(a * Convert<double>(dy[i * stride]) - b -
                                c * (Convert<double>(x[i * stride]) - mean));
}

/// The positions of one channel's values: `runs` runs of `length` values.
struct Channels {
  explicit Channels(const Shape& shape) : count(shape[1]) {
    const int64_t spatial = shape.Count(2, shape.rank());
    values = shape[0] * spatial;
    start = spatial;
    if (spatial == 1) {  // (N, C): the values of a channel are one strided run
      runs = 1;
      length = shape[0];
      stride = count;
    } else {
      runs = shape[0];
      length = spatial;
      step = count * spatial;
    }
  }
  /// Calls f(offset) for each run of channel c.
  template <class F>
  void ForRuns(int64_t c, const F& f) const {
    for (int64_t r = 0; r < runs; ++r) f(c * start + r * step);
  }
  int64_t grain() const { return kParallelGrain / (values + 1) + 1; }

  int64_t count;
  int64_t values;  // per channel
  int64_t start;
  int64_t runs;
  int64_t length;
  int64_t stride = 1;
  int64_t step = 0;
};

/// Computes the moments in two passes over the channel.
template <class T>
BatchNormMoments MomentsOf(const Channels& channels, const T* x, int64_t c) {
  BatchNormMoments moments;
  if (channels.values == 0) return moments;
  const auto count = static_cast<double>(channels.values);
  channels.ForRuns(
      c, [&](int64_t at) { moments.mean += Sum(x + at, channels.length, channels.stride); });
  moments.mean /= count;
  channels.ForRuns(c, [&](int64_t at) {
    moments.var += SumSquares(x + at, channels.length, channels.stride, moments.mean);
  });
  moments.var /= count;
  return moments;
}

template <class T, class Spec>
void Forward(const Spec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Channels channels(spec.shape);
  const T* x = execution.in<T>(0);
  const T* add = execution.in_or_null<T>(5);
  T* y = execution.out_or_null<T>(0);
  ParallelFor(channels.count, channels.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      S mean, var;
      if (spec.training) {
        BatchNormMoments moments;
        if constexpr (std::is_same_v<Spec, BatchNormFromSumsSpec>) {
          moments = BatchNormMomentsOf(static_cast<double>(channels.values), execution.in<S>(6)[c],
                                       execution.in<S>(7)[c]);
        } else {
          moments = MomentsOf(channels, x, c);
        }
        mean = execution.out<S>(1)[c] = static_cast<S>(moments.mean);
        var = execution.out<S>(2)[c] = static_cast<S>(moments.var);
      } else {
        mean = execution.in<S>(3)[c];
        var = execution.in<S>(4)[c];
      }
      if (!y) continue;
      const BatchNormAffine<S> affine(mean, var, execution.value_or<S>(1, c, 1),
                                      execution.value_or<S>(2, c, 0), spec.epsilon);
      channels.ForRuns(c, [&](int64_t at) {
        Normalize(x + at, add ? add + at : nullptr, y + at, channels.length, channels.stride,
                  affine, spec.activation);
      });
    }
  });
  if (spec.training) {
    const auto running = [&](size_t i) {
      return execution.outputs[i].empty() ? nullptr : execution.out<S>(i);
    };
    UpdateRunningStatistics<S>(channels.count, channels.values, execution.scalars.v[0],
                               execution.out<S>(1), execution.out<S>(2), running(3), running(4));
  }
}

// With x̂ = (x − mean) / std, s = scale / std and means over the values of one channel:
//   dscale = Σ dy · x̂,  dbias = Σ dy
//   dx = s · (dy − mean(dy) − x̂ · mean(dy · x̂)), or s · dy when mean and var are constants.
/// The gradients of channel c, from the gradient g of bn(x).
template <class T, class G>
void ChannelGradients(const BatchNormBackwardSpec& spec, const Execution& execution,
                      const Channels& channels, int64_t c, const G* g) {
  using S = ComputeType<T>;
  const T* x = execution.in<T>(1);
  const double n = static_cast<double>(channels.values), mean = execution.in<S>(3)[c];
  const double inv_std = 1 / std::sqrt(execution.in<S>(4)[c] + spec.epsilon);
  double sum_dy = 0, sum_dy_xhat = 0;
  if (spec.need_scale || (spec.training && spec.need_x && channels.values > 0)) {
    channels.ForRuns(c, [&](int64_t at) {
      sum_dy += Sum(g + at, channels.length, channels.stride);
      sum_dy_xhat += SumProducts(g + at, x + at, channels.length, channels.stride, mean);
    });
    sum_dy_xhat *= inv_std;
  }
  if (spec.need_scale) {
    execution.out<S>(1)[c] = static_cast<S>(sum_dy_xhat);
    execution.out<S>(2)[c] = static_cast<S>(sum_dy);
  }
  if (!spec.need_x) return;
  const double s = execution.value_or<S>(2, c, 1) * inv_std;
  const double through_mean = spec.training ? s * sum_dy / n : 0;
  const double through_var = spec.training ? s * inv_std * sum_dy_xhat / n : 0;
  channels.ForRuns(c, [&](int64_t at) {
    Gradient(g + at, x + at, execution.out<T>(0) + at, channels.length, channels.stride, mean, s,
             through_mean, through_var);
  });
}

template <class T>
void Backward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Channels channels(spec.shape);
  const T *dy = execution.in<T>(0), *x = execution.in<T>(1), *y = execution.in_or_null<T>(6);
  const T* dy2 = spec.has_dy2 ? execution.in<T>(BatchNormBackwardSpec::kDy2) : nullptr;
  ParallelFor(channels.count, channels.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const auto through_activation = [&](auto* g) {
        const BatchNormAffine<S> affine(execution.in<S>(3)[c], execution.in<S>(4)[c],
                                        execution.value_or<S>(2, c, 1),
                                        execution.value_or<S>(5, c, 0), spec.epsilon);
        channels.ForRuns(c, [&](int64_t at) {
          ThroughActivation(dy + at, dy2 ? dy2 + at : nullptr, x + at, y ? y + at : nullptr, g + at,
                            channels.length, channels.stride, affine, spec.activation);
        });
        ChannelGradients<T>(spec, execution, channels, c, g);
      };
      if (spec.need_add)
        through_activation(execution.out<T>(3));
      else if (spec.activation)
        through_activation(static_cast<S*>(execution.workspace));
      else
        ChannelGradients<T>(spec, execution, channels, c, dy);
    }
  });
}

size_t BackwardWorkspace(const BatchNormBackwardSpec& spec) {
  if (!spec.activation || spec.need_add) return 0;
  return static_cast<size_t>(spec.shape.Count()) * SizeOf(StatisticsType(spec.dtype));
}

template <class Spec>
void RunForward(const Spec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<BatchNormForwardSpec, RunForward<BatchNormForwardSpec>>();
  RegisterReference<BatchNormFromSumsSpec, RunForward<BatchNormFromSumsSpec>>();
  RegisterReference<BatchNormStatisticsSpec, RunForward<BatchNormStatisticsSpec>>();
  RegisterReference<BatchNormBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::reference
