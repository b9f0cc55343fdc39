// Batch normalisation (Ioffe and Szegedy 2015). Statistics take two passes, the variance around the
// mean, and sums are taken in double: data with a mean far from zero keeps its variance. y follows
// from the statistics as BatchNormAffine says. Where ReLU follows, backward first cuts dy off, and
// goes on as without.

#include <cmath>
#include <type_traits>

#include "backend/reference/register.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "model/operation/batchnorm_spec.h"
#include "model/operation/kernel.h"

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
template <class T>
SINGA_MULTI_ISA double SumProducts(const T* dy, const T* x, int64_t n, int64_t stride,
                                   double mean) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i)
    sum += Convert<double>(dy[i * stride]) * (Convert<double>(x[i * stride]) - mean);
  return sum;
}

/// y = bn(x), + add where that is not null, and then ReLU.
template <class T, class S>
SINGA_MULTI_ISA void Normalize(const T* x, const T* add, T* y, int64_t n, int64_t stride,
                               const BatchNormAffine<S>& affine, bool relu) {
  for (int64_t i = 0; i < n; ++i) {
    S v = affine(Convert<S>(x[i * stride]));
    if (add) v += Convert<S>(add[i * stride]);
    y[i * stride] = Convert<T>(relu ? Rectified(v) : v);
  }
}

/// dy, or dy + dy2 if that is not null, where relu(bn(x) [+ add]) is positive, else 0; y says
/// where, or bn(x) if y is null.
template <class T, class S>
SINGA_MULTI_ISA void CutOff(const T* dy, const T* dy2, const T* x, const T* y, T* result, int64_t n,
                            int64_t stride, const BatchNormAffine<S>& affine) {
  for (int64_t i = 0; i < n; ++i) {
    const S sign = y ? Convert<S>(y[i * stride]) : affine(Convert<S>(x[i * stride]));
    S gradient = Convert<S>(dy[i * stride]);
    if (dy2) gradient += Convert<S>(dy2[i * stride]);
    result[i * stride] = Convert<T>(WhereRectified(sign, gradient));
  }
}

/// dx = a · dy − b − (x − mean) · c
template <class T>
SINGA_MULTI_ISA void Gradient(const T* dy, const T* x, T* dx, int64_t n, int64_t stride,
                              double mean, double a, double b, double c) {
  for (int64_t i = 0; i < n; ++i)
    dx[i * stride] = Convert<T>(a * Convert<double>(dy[i * stride]) - b -
                                c * (Convert<double>(x[i * stride]) - mean));
}

/// Where one channel's values lie: `runs` runs of `length` values.
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

/// Values of a channel's parameter, or `otherwise` where it is left out.
template <class S>
S ValueOr(const Execution& execution, size_t input, int64_t c, S otherwise) {
  return execution.inputs[input].empty() ? otherwise : execution.in<S>(input)[c];
}

template <class T>
const T* InputOrNull(const Execution& execution, size_t i) {
  return execution.inputs[i].empty() ? nullptr : execution.in<T>(i);
}

/// By two passes over the channel.
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
  const T* add = InputOrNull<T>(execution, 5);
  T* y = execution.out<T>(0);
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
      const BatchNormAffine<S> affine(mean, var, ValueOr<S>(execution, 1, c, 1),
                                      ValueOr<S>(execution, 2, c, 0), spec.epsilon);
      channels.ForRuns(c, [&](int64_t at) {
        Normalize(x + at, add ? add + at : nullptr, y + at, channels.length, channels.stride,
                  affine, spec.relu);
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
template <class T>
void Backward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Channels channels(spec.shape);
  const T* x = execution.in<T>(1);
  const T* y = InputOrNull<T>(execution, 6);
  const T* dy = execution.in<T>(0);
  const T* dy2 = spec.has_dy2 ? execution.in<T>(BatchNormBackwardSpec::kDy2) : nullptr;
  T* cut = nullptr;  // where dy · (y > 0) goes
  if (spec.relu) cut = static_cast<T*>(spec.need_add ? execution.out<T>(3) : execution.workspace);
  const double n = static_cast<double>(channels.values);
  const bool need_sums = spec.need_scale || (spec.training && spec.need_x && channels.values > 0);
  ParallelFor(channels.count, channels.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const S scale = ValueOr<S>(execution, 2, c, 1);
      const double mean = execution.in<S>(3)[c];
      const double inv_std = 1 / std::sqrt(execution.in<S>(4)[c] + spec.epsilon);
      const T* g = dy;
      if (spec.relu) {
        const BatchNormAffine<S> affine(execution.in<S>(3)[c], execution.in<S>(4)[c], scale,
                                        ValueOr<S>(execution, 5, c, 0), spec.epsilon);
        channels.ForRuns(c, [&](int64_t at) {
          CutOff(dy + at, dy2 ? dy2 + at : nullptr, x + at, y ? y + at : nullptr, cut + at,
                 channels.length, channels.stride, affine);
        });
        g = cut;
      }
      double sum_dy = 0, sum_dy_xhat = 0;
      if (need_sums) {
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
      if (!spec.need_x) continue;
      const double s = scale * inv_std;
      const double through_mean = spec.training ? s * sum_dy / n : 0;
      const double through_var = spec.training ? s * inv_std * sum_dy_xhat / n : 0;
      channels.ForRuns(c, [&](int64_t at) {
        Gradient(g + at, x + at, execution.out<T>(0) + at, channels.length, channels.stride, mean,
                 s, through_mean, through_var);
      });
    }
  });
}

size_t BackwardWorkspace(const BatchNormBackwardSpec& spec) {
  return spec.relu && !spec.need_add ? static_cast<size_t>(spec.shape.Count()) * SizeOf(spec.dtype)
                                     : 0;
}

template <class Spec>
void RunForward(const Spec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

void RegisterBatchNorm() {
  RegisterReference<BatchNormForwardSpec, RunForward<BatchNormForwardSpec>>();
  RegisterReference<BatchNormFromSumsSpec, RunForward<BatchNormFromSumsSpec>>();
  RegisterReference<BatchNormBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::reference
