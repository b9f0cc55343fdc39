// Softmax and log-softmax along the middle axis of (outer, axis, inner), a few lanes of the inner
// axis at a time. A lane that holds a NaN, +inf, or nothing but -inf is NaN everywhere, as 0 / 0
// is.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "backend/reference/register.h"
#include "core/dtype_switch.h"
#include "core/parallel.h"
#include "model/operation/kernel.h"
#include "model/operation/softmax_spec.h"

namespace singa::reference {
namespace {

constexpr int64_t kLanes = 64;

/// `lanes` neighbouring lanes of `length` elements, `stride` apart.
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

/// dx = y · (dy − Σ dy · y); of log-softmax dy − exp(y) · Σ dy
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

/// Calls f(first element, lanes) for groups of lanes that cover the tensor.
template <class Spec, class F>
void ForLanes(const Spec& spec, const F& f) {
  const int64_t groups = (spec.inner + kLanes - 1) / kLanes;
  const int64_t elements = spec.axis * std::min(spec.inner, kLanes);
  constexpr int64_t kWork = 8;  // an exponential costs as much as some additions
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
      SoftmaxLanes(execution.in<T>(0) + at, execution.out<T>(0) + at, spec.axis, spec.inner, lanes,
                   spec.log);
    });
  });
}

void RunBackward(const SoftmaxBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ForLanes(spec, [&](int64_t at, int64_t lanes) {
      SoftmaxBackwardLanes(execution.in<T>(0) + at, execution.in<T>(1) + at,
                           execution.out<T>(0) + at, spec.axis, spec.inner, lanes, spec.log);
    });
  });
}

}  // namespace

void RegisterSoftmax() {
  RegisterReference<SoftmaxSpec, RunForward>();
  RegisterReference<SoftmaxBackwardSpec, RunBackward>();
}

}  // namespace singa::reference
