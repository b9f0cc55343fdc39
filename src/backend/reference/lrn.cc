// Local response normalisation across channels. With b = k + alpha / size · Σ x² over the window of
// a channel (AddSquares, Base):
//   y = x · b^-beta
//   dx_i = dy_i · b_i^-beta − 2 · alpha · beta / size · x_i · Σ_j dy_j · x_j · b_j^(-beta-1)
// where j runs over the channels whose window contains i.

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/operation/lrn/spec.h"

namespace singa::reference {
namespace {

/// Positions that are processed together, so that the sums stay in the L1 cache.
constexpr int64_t kChunk = 256;

template <class T>
SINGA_MULTI_ISA void AddSquares(const T* x, int64_t n, double* sum) {
  for (int64_t i = 0; i < n; ++i) {
    const double value = Convert<double>(x[i]);
    sum[i] += value * value;
  }
}

/// power = base^-beta
SINGA_MULTI_ISA void InversePower(const double* base, int64_t n, double beta, double* power) {
  if (beta == 0.75) {  // the usual value; square roots vectorise, pow does not
    for (int64_t i = 0; i < n; ++i) {
      const double root = std::sqrt(base[i]);
      power[i] = 1 / (root * std::sqrt(root));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) power[i] = std::pow(base[i], -beta);
  }
}

template <class T>
SINGA_MULTI_ISA void Multiply(const T* x, const double* factor, int64_t n, T* y) {
  for (int64_t i = 0; i < n; ++i) y[i] = Convert<T>(Convert<double>(x[i]) * factor[i]);
}

/// direct = dy · b^-beta, through = dy · x · b^(-beta-1)
template <class T, class S>
SINGA_MULTI_ISA void Terms(const T* dy, const T* x, const double* base, const double* power,
                           int64_t n, S* direct, S* through) {
  for (int64_t i = 0; i < n; ++i) {
    const double d = Convert<double>(dy[i]) * power[i];
    direct[i] = static_cast<S>(d);
    through[i] = static_cast<S>(d * Convert<double>(x[i]) / base[i]);
  }
}

template <class S>
SINGA_MULTI_ISA void Add(const S* x, int64_t n, double* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] += x[i];
}

/// dx = direct − factor · x · sum
template <class T, class S>
SINGA_MULTI_ISA void Combine(const S* direct, const T* x, const double* sum, double factor,
                             int64_t n, T* dx) {
  for (int64_t i = 0; i < n; ++i)
    dx[i] = Convert<T>(direct[i] - factor * Convert<double>(x[i]) * sum[i]);
}

struct Geometry {
  Geometry(const Shape& shape, int64_t size)
      : window(size),
        batch(shape[0]),
        channels(shape[1]),
        spatial(shape.Count(2, shape.rank())),
        grain(kParallelGrain / (spatial * std::min(size, channels) + 1) + 1) {}

  /// Calls f(c, offset of channel c in its image, position, n) for chunks that cover all positions.
  template <class F>
  void ForChunks(const F& f) const {
    ParallelFor(batch * channels, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        for (int64_t s = 0; s < spatial; s += kChunk)
          f(i % channels, i * spatial + s, std::min(kChunk, spatial - s));
    });
  }
  /// Calls f(distance to channel c in elements) for the existing channels in [c − below, c +
  /// above].
  template <class F>
  void ForNeighbours(int64_t c, int64_t below, int64_t above, const F& f) const {
    const int64_t last = above < channels - c ? c + above : channels - 1;
    for (int64_t j = c > below ? c - below : 0; j <= last; ++j) f((j - c) * spatial);
  }

  LrnWindow window;
  int64_t batch, channels, spatial, grain;
};

/// b of n positions in channel c, starting at `x`.
template <class Spec, class T>
void Base(const Spec& spec, const Geometry& geometry, const T* x, int64_t c, int64_t n,
          double* base) {
  std::fill_n(base, n, 0.0);
  geometry.ForNeighbours(c, geometry.window.below, geometry.window.above,
                         [&](int64_t distance) { AddSquares(x + distance, n, base); });
  const double scale = spec.alpha / static_cast<double>(spec.size);
  for (int64_t i = 0; i < n; ++i) base[i] = spec.k + scale * base[i];
}

template <class T>
void Forward(const LrnForwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Geometry geometry(spec.shape, spec.size);
  const T* x = execution.in<T>(0);
  T* y = execution.out<T>(0);
  // OPCHECK may pass an output in another implementation's private format.
  const bool keeps = spec.save && execution.outputs[1].data_type() == kDTypeOf<S>;
  S* saved = keeps ? execution.out<S>(1) : nullptr;
  geometry.ForChunks([&](int64_t c, int64_t at, int64_t n) {
    double base[kChunk] = {}, power[kChunk] = {};
    Base(spec, geometry, x + at, c, n, base);
    if (saved) std::transform(base, base + n, saved + at, [](double b) { return S(b); });
    InversePower(base, n, spec.beta, power);
    Multiply(x + at, power, n, y + at);
  });
}

template <class T>
void Backward(const LrnBackwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Geometry geometry(spec.shape, spec.size);
  const T* dy = execution.in<T>(0);
  const T* x = execution.in<T>(1);
  S* direct = static_cast<S*>(execution.workspace);
  S* through = direct + spec.shape.Count();
  geometry.ForChunks([&](int64_t c, int64_t at, int64_t n) {
    double base[kChunk] = {}, power[kChunk] = {};
    if (spec.saved == SavedForm::kCommon) {
      std::copy_n(execution.in<S>(2) + at, n, base);
    } else {
      Base(spec, geometry, x + at, c, n, base);
    }
    InversePower(base, n, spec.beta, power);
    Terms(dy + at, x + at, base, power, n, direct + at, through + at);
  });
  const double factor = 2 * spec.alpha * spec.beta / static_cast<double>(spec.size);
  geometry.ForChunks([&](int64_t c, int64_t at, int64_t n) {
    double sum[kChunk] = {};
    geometry.ForNeighbours(c, geometry.window.above, geometry.window.below,
                           [&](int64_t distance) { Add(through + at + distance, n, sum); });
    Combine(direct + at, x + at, sum, factor, n, execution.out<T>(0) + at);
  });
}

size_t BackwardWorkspace(const LrnBackwardSpec& spec) {
  const size_t element = spec.dtype == kFloat64 ? sizeof(double) : sizeof(float);
  return 2 * element * static_cast<size_t>(spec.shape.Count());
}

void RunForward(const LrnForwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const LrnBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(reference) {
  RegisterReference<LrnForwardSpec, RunForward>();
  RegisterReference<LrnBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::reference
