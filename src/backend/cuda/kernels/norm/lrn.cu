// Local response normalisation across channels, one thread per element. With b = k + alpha / size ·
// Σ x² over the window of a channel:
//   y = x · b^-beta
//   dx_i = dy_i · b_i^-beta − 2 · alpha · beta / size · x_i · Σ_j dy_j · x_j · b_j^(-beta-1)
// where j runs over the channels whose window contains i.

#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/image_plan.h"
#include "model/operation/lrn/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

struct Lrn {
  int64_t channels, step;  ///< distance of neighbouring channels in elements
  int64_t below, above;    ///< the window of channel c is [c − below, c + above]
  double scale, beta, k;

  __device__ int64_t ChannelOf(int64_t i) const { return i / step % channels; }
  /// Calls f(distance) for the existing channels in [c − below, c + above].
  template <class F>
  __device__ void ForNeighbours(int64_t c, int64_t below, int64_t above, const F& f) const {
    const int64_t last = above < channels - c ? c + above : channels - 1;
    for (int64_t j = c > below ? c - below : 0; j <= last; ++j) f((j - c) * step);
  }
  template <class T>
  __device__ double Base(const T* x, int64_t c) const {
    double sum = 0;
    ForNeighbours(c, below, above, [&](int64_t distance) {
      const auto value = static_cast<double>(Cast<ComputeType<T>>(x[distance]));
      sum += value * value;
    });
    return k + scale * sum;
  }
  __device__ double InversePower(double base) const {
    if (beta != 0.75) return std::pow(base, -beta);
    const double root = std::sqrt(base);  // the usual beta: square roots are faster
    return 1 / (root * std::sqrt(root));
  }
};

template <class Spec>
Lrn LrnOf(const Spec& spec) {
  const LrnWindow window(spec.size);
  return {spec.shape[1],
          spec.x_layout ? 1 : spec.shape.Count(2, spec.shape.rank()),
          window.below,
          window.above,
          spec.alpha / static_cast<double>(spec.size),
          spec.beta,
          spec.k};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    Forward(Lrn lrn, const T* x, T* y, ComputeType<T>* saved, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const double base = lrn.Base(x + i, lrn.ChannelOf(i));
    if (saved) saved[i] = static_cast<ComputeType<T>>(base);
    y[i] = Cast<T>(static_cast<double>(Cast<ComputeType<T>>(x[i])) * lrn.InversePower(base));
  }
}

/// direct = dy · b^-beta, through = dy · x · b^(-beta-1)
template <class T>
__global__ void __launch_bounds__(kThreads)
    Terms(Lrn lrn, const T* dy, const T* x, const ComputeType<T>* saved, ComputeType<T>* direct,
          ComputeType<T>* through, int64_t size) {
  using S = ComputeType<T>;
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const double base = saved ? static_cast<double>(saved[i]) : lrn.Base(x + i, lrn.ChannelOf(i));
    const double d = static_cast<double>(Cast<S>(dy[i])) * lrn.InversePower(base);
    direct[i] = static_cast<S>(d);
    through[i] = static_cast<S>(d * static_cast<double>(Cast<S>(x[i])) / base);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    Combine(Lrn lrn, const T* x, const ComputeType<T>* direct, const ComputeType<T>* through,
            double factor, T* dx, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    double sum = 0;
    lrn.ForNeighbours(lrn.ChannelOf(i), lrn.above, lrn.below,
                      [&](int64_t distance) { sum += static_cast<double>(through[i + distance]); });
    const auto value = static_cast<double>(Cast<ComputeType<T>>(x[i]));
    dx[i] = Cast<T>(static_cast<double>(direct[i]) - factor * value * sum);
  }
}

void RunForward(const LrnForwardSpec& spec, const Execution& execution) {
  const int64_t size = spec.shape.Count();
  const Lrn lrn = LrnOf(spec);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(Forward<T>, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
                      lrn, execution.in<T>(0), execution.out<T>(0),
                      spec.save ? execution.out<ComputeType<T>>(1) : nullptr, size);
  });
}

void RunBackward(const LrnBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t size = spec.shape.Count();
  const Lrn lrn = LrnOf(spec);
  const dim3 grid = GridFor(size, kThreads);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using S = ComputeType<T>;
    S* direct = static_cast<S*>(execution.workspace);
    S* through = direct + size;
    const S* saved = spec.saved == SavedForm::kCommon ? execution.in<S>(2) : nullptr;
    LaunchIndependent(Terms<T>, grid, kThreads, stream, lrn, execution.in<T>(0), execution.in<T>(1),
                      saved, direct, through, size);
    LaunchIndependent(Combine<T>, grid, kThreads, stream, lrn, execution.in<T>(1), direct, through,
                      2 * spec.alpha * spec.beta / static_cast<double>(spec.size),
                      execution.out<T>(0), size);
  });
}

size_t BackwardWorkspace(const LrnBackwardSpec& spec) {
  const size_t element = spec.dtype == kFloat64 ? sizeof(double) : sizeof(float);
  return 2 * element * static_cast<size_t>(spec.shape.Count());
}

template <class Spec>
LayoutPtr LayoutOf(const Spec& spec, DType dtype) {
  return ImageLayout(spec.x_layout != nullptr, spec.shape, dtype);
}
/// The type of what forward saves.
DType BaseType(DType x) { return x == kFloat64 ? kFloat64 : kFloat32; }

// x -> y, saved
ImageLayouts ForwardLayouts(const LrnForwardSpec& spec) {
  const LayoutPtr x = LayoutOf(spec, spec.dtype);
  return {{x}, {x, LayoutOf(spec, BaseType(spec.dtype))}};
}
// dy, x, saved -> dx
ImageLayouts BackwardLayouts(const LrnBackwardSpec& spec) {
  const LayoutPtr x = LayoutOf(spec, spec.dtype);
  return {{x, x, LayoutOf(spec, BaseType(spec.dtype))}, {x}};
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterImageKernels<LrnForwardSpec, RunForward, ForwardLayouts>();
  RegisterImageKernels<LrnBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
