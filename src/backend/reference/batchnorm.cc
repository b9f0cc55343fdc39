// Batch normalisation (Ioffe and Szegedy 2015). Statistics take two passes, the variance around the
// mean, and everything is computed in double: data with a mean far from zero keeps its variance.

#include <cmath>

#include "backend/reference/dtype_switch.h"
#include "backend/reference/parallel.h"
#include "backend/reference/register.h"
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

/// y = (x − mean) · a + b
template <class T>
SINGA_MULTI_ISA void Normalize(const T* x, T* y, int64_t n, int64_t stride, double mean, double a,
                               double b) {
  for (int64_t i = 0; i < n; ++i)
    y[i * stride] = Convert<T>((Convert<double>(x[i * stride]) - mean) * a + b);
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

template <class S>
double ValueOr(const Execution& execution, size_t input, int64_t c, double otherwise) {
  return execution.inputs[input].empty() ? otherwise : execution.in<S>(input)[c];
}

template <class T>
void Forward(const BatchNormForwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Channels channels(spec.shape);
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  ParallelFor(channels.count, channels.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double mean = 0, var = 0;
      if (spec.training) {
        if (channels.values > 0) {
          channels.ForRuns(
              c, [&](int64_t at) { mean += Sum(x + at, channels.length, channels.stride); });
          mean /= static_cast<double>(channels.values);
          channels.ForRuns(c, [&](int64_t at) {
            var += SumSquares(x + at, channels.length, channels.stride, mean);
          });
          var /= static_cast<double>(channels.values);
        }
        execution.out<S>(1)[c] = static_cast<S>(mean);
        execution.out<S>(2)[c] = static_cast<S>(var);
      } else {
        mean = execution.in<S>(3)[c];
        var = execution.in<S>(4)[c];
      }
      const double a = ValueOr<S>(execution, 1, c, 1) / std::sqrt(var + spec.epsilon);
      const double b = ValueOr<S>(execution, 2, c, 0);
      channels.ForRuns(c, [&](int64_t at) {
        Normalize(x + at, y + at, channels.length, channels.stride, mean, a, b);
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
  const T* dy = execution.in<T>(0);
  const T* x = execution.in<T>(1);
  const double n = static_cast<double>(channels.values);
  const bool need_sums = spec.need_scale || (spec.training && channels.values > 0);
  ParallelFor(channels.count, channels.grain(), [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const double mean = execution.in<S>(3)[c];
      const double inv_std = 1 / std::sqrt(execution.in<S>(4)[c] + spec.epsilon);
      double sum_dy = 0, sum_dy_xhat = 0;
      if (need_sums) {
        channels.ForRuns(c, [&](int64_t at) {
          sum_dy += Sum(dy + at, channels.length, channels.stride);
          sum_dy_xhat += SumProducts(dy + at, x + at, channels.length, channels.stride, mean);
        });
        sum_dy_xhat *= inv_std;
      }
      if (spec.need_scale) {
        execution.out<S>(1)[c] = static_cast<S>(sum_dy_xhat);
        execution.out<S>(2)[c] = static_cast<S>(sum_dy);
      }
      if (!spec.need_x) continue;
      const double s = ValueOr<S>(execution, 2, c, 1) * inv_std;
      const double through_mean = spec.training ? s * sum_dy / n : 0;
      const double through_var = spec.training ? s * inv_std * sum_dy_xhat / n : 0;
      channels.ForRuns(c, [&](int64_t at) {
        Gradient(dy + at, x + at, execution.out<T>(0) + at, channels.length, channels.stride, mean,
                 s, through_mean, through_var);
      });
    }
  });
}

void RunForward(const BatchNormForwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

void RegisterBatchNorm() {
  RegisterReference<BatchNormForwardSpec, RunForward>();
  RegisterReference<BatchNormBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
