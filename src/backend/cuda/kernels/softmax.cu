// Softmax and log-softmax along the middle axis of (outer, axis, inner). A lane that contains NaN
// or +inf, or only -inf, becomes NaN, as 0 / 0 does.
//
// If inner is 1, the threads of a block share a lane; else neighbouring threads have neighbouring
// lanes. Each pass reads the elements again; all passes but the first read from a cache.

#include <cmath>
#include <limits>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/softmax/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

struct Larger {  // ignores NaN, which the sum keeps
  template <class C>
  __device__ C operator()(C a, C b) const {
    return b > a ? b : a;
  }
};

/// This thread's elements of a lane, and how it joins values with the lane's other threads.
struct SharedLane {
  __device__ SharedLane(int64_t axis, int64_t, int64_t)
      : begin(blockIdx.x * axis + threadIdx.x), end((blockIdx.x + 1) * axis), step(blockDim.x) {}
  template <class C, class Join>
  __device__ C All(C value, C identity, const Join& join) const {
    return JoinBlock(value, identity, join);
  }
  int64_t begin, end, step;
};
struct OwnLane {
  __device__ OwnLane(int64_t axis, int64_t inner, int64_t lanes) : step(inner) {
    const int64_t lane = FirstElement();
    begin = lane / inner * axis * inner + lane % inner;
    end = lane < lanes ? begin + axis * inner : begin;
  }
  template <class C, class Join>
  __device__ C All(C value, C, const Join&) const {
    return value;
  }
  int64_t begin, end, step;
};

template <class T, class Lane>
__global__ void __launch_bounds__(kThreads)
    Forward(const T* x, T* y, int64_t axis, int64_t inner, int64_t lanes, bool log) {
  using C = ComputeType<T>;
  const Lane lane(axis, inner, lanes);
  constexpr C kLeast = -std::numeric_limits<C>::infinity();
  C most = kLeast, sum = 0;
  for (int64_t i = lane.begin; i < lane.end; i += lane.step) most = Larger()(most, Cast<C>(x[i]));
  most = lane.All(most, kLeast, Larger());
  for (int64_t i = lane.begin; i < lane.end; i += lane.step) sum += std::exp(Cast<C>(x[i]) - most);
  sum = lane.All(sum, C(0), Plus());
  const C log_sum = std::log(sum);
  for (int64_t i = lane.begin; i < lane.end; i += lane.step) {
    const C shifted = Cast<C>(x[i]) - most;
    y[i] = Cast<T>(log ? shifted - log_sum : std::exp(shifted) / sum);
  }
}

/// dx = y · (dy − Σ dy · y); for log-softmax dx = dy − exp(y) · Σ dy. Unlike the terms of forward,
/// these terms may cancel, so their sum is a double.
template <class T, class Lane>
__global__ void __launch_bounds__(kThreads)
    Backward(const T* dy, const T* y, T* dx, int64_t axis, int64_t inner, int64_t lanes, bool log) {
  using C = ComputeType<T>;
  const Lane lane(axis, inner, lanes);
  double total = 0;
  for (int64_t i = lane.begin; i < lane.end; i += lane.step) {
    const auto gradient = static_cast<double>(Cast<C>(dy[i]));
    total += log ? gradient : gradient * static_cast<double>(Cast<C>(y[i]));
  }
  const C sum = static_cast<C>(lane.All(total, 0.0, Plus()));
  for (int64_t i = lane.begin; i < lane.end; i += lane.step) {
    const C gradient = Cast<C>(dy[i]), out = Cast<C>(y[i]);
    dx[i] = Cast<T>(log ? gradient - std::exp(out) * sum : out * (gradient - sum));
  }
}

void RunForward(const SoftmaxSpec& spec, const Execution& execution) {
  const int64_t lanes = spec.outer * spec.inner;
  if (lanes * spec.axis == 0) return;
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* x = execution.in<T>(0);
    T* y = execution.out<T>(0);
    if (spec.inner == 1 && FitsIndex32(lanes)) {
      Launch(Forward<T, SharedLane>, static_cast<unsigned>(lanes),
             spec.axis > 512 ? kThreads : kWarpThreads, stream, x, y, spec.axis, spec.inner, lanes,
             spec.log);
    } else {
      LaunchIndependent(Forward<T, OwnLane>, GridFor(lanes, kThreads), kThreads, stream, x, y,
                        spec.axis, spec.inner, lanes, spec.log);
    }
  });
}

void RunBackward(const SoftmaxBackwardSpec& spec, const Execution& execution) {
  const int64_t lanes = spec.outer * spec.inner;
  if (lanes * spec.axis == 0) return;
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const T* dy = execution.in<T>(0);
    const T* y = execution.in<T>(1);
    T* dx = execution.out<T>(0);
    if (spec.inner == 1 && FitsIndex32(lanes)) {
      Launch(Backward<T, SharedLane>, static_cast<unsigned>(lanes),
             spec.axis > 512 ? kThreads : kWarpThreads, stream, dy, y, dx, spec.axis, spec.inner,
             lanes, spec.log);
    } else {
      LaunchIndependent(Backward<T, OwnLane>, GridFor(lanes, kThreads), kThreads, stream, dy, y, dx,
                        spec.axis, spec.inner, lanes, spec.log);
    }
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<SoftmaxSpec, RunForward>();
  RegisterKernels<SoftmaxBackwardSpec, RunBackward>();
}

}  // namespace singa::cuda
