// Softmax and log-softmax along the middle axis of (outer, axis, inner). With an inner axis, loops
// run over a few neighbouring lanes at a time; without one, along the row. A lane that contains NaN
// or +inf, or only -inf, becomes NaN, as 0 / 0 does.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/vector_math.h"
#include "model/operation/softmax/spec.h"

namespace singa::reference {
namespace {

using formula::Exp;

constexpr int64_t kLanes = 64;

/// Softmax of `lanes` neighbouring lanes, each of `length` elements that are `stride` apart.
template <class T>
SINGA_MULTI_ISA void SoftmaxLanes(const T* x, T* y, int64_t length, int64_t stride, int64_t lanes,
                                  bool log) {
  double most[kLanes], sum[kLanes];
  std::fill_n(most, lanes, -std::numeric_limits<double>::infinity());
  std::fill_n(sum, lanes, 0.0);
  for (int64_t a = 0; a < length; ++a) {
    for (int64_t i = 0; i < lanes; ++i) {
      const double value = Convert<double>(x[a * stride + i]);
      most[i] = value > most[i] ? value : most[i];
    }
  }
  for (int64_t a = 0; a < length; ++a) {
    for (int64_t i = 0; i < lanes; ++i)
      sum[i] += std::exp(Convert<double>(x[a * stride + i]) - most[i]);
  }
  if (log) std::transform(sum, sum + lanes, sum, [](double s) { return std::log(s); });
  for (int64_t a = 0; a < length; ++a) {
    for (int64_t i = 0; i < lanes; ++i) {
      const double shifted = Convert<double>(x[a * stride + i]) - most[i];
      y[a * stride + i] = Convert<T>(log ? shifted - sum[i] : std::exp(shifted) / sum[i]);
    }
  }
}

/// dx = y · (dy − Σ dy · y); for log-softmax dx = dy − exp(y) · Σ dy
template <class T>
SINGA_MULTI_ISA void SoftmaxBackwardLanes(const T* dy, const T* y, T* dx, int64_t length,
                                          int64_t stride, int64_t lanes, bool log) {
  double sum[kLanes];
  std::fill_n(sum, lanes, 0.0);
  for (int64_t a = 0; a < length; ++a) {
    for (int64_t i = 0; i < lanes; ++i) {
      const double gradient = Convert<double>(dy[a * stride + i]);
      sum[i] += log ? gradient : gradient * Convert<double>(y[a * stride + i]);
    }
  }
  for (int64_t a = 0; a < length; ++a) {
    for (int64_t i = 0; i < lanes; ++i) {
      const double gradient = Convert<double>(dy[a * stride + i]);
      const double out = Convert<double>(y[a * stride + i]);
      dx[a * stride + i] =
          Convert<T>(log ? gradient - std::exp(out) * sum[i] : out * (gradient - sum[i]));
    }
  }
}

/// SoftmaxLanes for one contiguous lane.
template <class T>
SINGA_MULTI_ISA void SoftmaxRow(const T* x, T* y, int64_t length, bool log) {
  using C = ComputeType<T>;
  C most = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t a = 0; a < length; ++a) most = std::max(most, Convert<C>(x[a]));
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t a = 0; a < length; ++a) sum += Exp(Convert<C>(x[a]) - most);
  if (log) {
    const double log_sum = std::log(sum);
    for (int64_t a = 0; a < length; ++a)
      y[a] = Convert<T>(Convert<double>(x[a]) - Convert<double>(most) - log_sum);
  } else {
    for (int64_t a = 0; a < length; ++a) y[a] = Convert<T>(Exp(Convert<C>(x[a]) - most) / sum);
  }
}

/// SoftmaxBackwardLanes for one contiguous lane.
template <class T>
SINGA_MULTI_ISA void SoftmaxBackwardRow(const T* dy, const T* y, T* dx, int64_t length, bool log) {
  using C = ComputeType<T>;
  double sum = 0;
  if (log) {
#pragma omp simd reduction(+ : sum)
    for (int64_t a = 0; a < length; ++a) sum += Convert<double>(dy[a]);
    for (int64_t a = 0; a < length; ++a)
      dx[a] = Convert<T>(Convert<double>(dy[a]) - Exp(Convert<C>(y[a])) * sum);
  } else {
#pragma omp simd reduction(+ : sum)
    for (int64_t a = 0; a < length; ++a) sum += Convert<double>(dy[a]) * Convert<double>(y[a]);
    for (int64_t a = 0; a < length; ++a)
      dx[a] = Convert<T>(Convert<double>(y[a]) * (Convert<double>(dy[a]) - sum));
  }
}

/// Calls f(first element, lanes) for groups of lanes that cover the tensor.
template <class Spec, class F>
void ForLanes(const Spec& spec, const F& f) {
  const int64_t groups = (spec.inner + kLanes - 1) / kLanes;
  const int64_t elements = spec.axis * std::min(spec.inner, kLanes);
  constexpr int64_t kWork = 8;  // an exponential costs about eight additions
  ParallelFor(spec.outer * groups, kParallelGrain / (elements * kWork + 1) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const int64_t inner = i % groups * kLanes;
                  f(i / groups * spec.axis * spec.inner + inner,
                    std::min(kLanes, spec.inner - inner));
                }
              });
}

void RunForward(const SoftmaxSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ForLanes(spec, [&](int64_t at, int64_t lanes) {
      const T* x = execution.in<T>(0) + at;
      T* y = execution.out<T>(0) + at;
      if (spec.inner == 1) {
        SoftmaxRow(x, y, spec.axis, spec.log);
      } else {
        SoftmaxLanes(x, y, spec.axis, spec.inner, lanes, spec.log);
      }
    });
  });
}

void RunBackward(const SoftmaxBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ForLanes(spec, [&](int64_t at, int64_t lanes) {
      const T *dy = execution.in<T>(0) + at, *y = execution.in<T>(1) + at;
      T* dx = execution.out<T>(0) + at;
      if (spec.inner == 1) {
        SoftmaxBackwardRow(dy, y, dx, spec.axis, spec.log);
      } else {
        SoftmaxBackwardLanes(dy, y, dx, spec.axis, spec.inner, lanes, spec.log);
      }
    });
  });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<SoftmaxSpec, RunForward>();
  RegisterReference<SoftmaxBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
