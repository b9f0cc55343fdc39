// Interpolation along up to three neighbouring axes. A first kernel writes the weights of each axis
// to the workspace. Then each thread has an element of the result and sums over all axes. In
// backward it finds by the first taps, which do not decrease, the positions that use its own.

#include <algorithm>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/image_plan.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/interpolate/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kAxes = kMostInterpolated;

/// The taps of an axis: position i of y is Σ weights[i · taps + k] · x[first[i] + k].
struct AxisWeights {
  int64_t in, out, taps;
  int64_t* first;
  double* weights;
};

struct Weights {
  AxisWeights axis[kAxes];
};

Weights WeightsOf(const InterpolationFields& spec, void* workspace) {
  Weights weights;
  auto* memory = static_cast<int64_t*>(workspace);
  for (int i = 0; i < kAxes; ++i) {
    const formula::InterpolatedAxis axis = spec.axis(i);
    const int64_t taps = std::min(formula::MostTaps(spec.how, axis), axis.in);
    weights.axis[i] = {axis.in, axis.out, taps, memory,
                       reinterpret_cast<double*>(memory + axis.out)};
    memory += axis.out * (taps + 1);
  }
  return weights;
}

template <class Spec>
size_t Workspace(const Spec& spec) {
  int64_t words = 0;
  for (int i = 0; i < kAxes; ++i) {
    const formula::InterpolatedAxis axis = spec.axis(i);
    words += axis.out * (std::min(formula::MostTaps(spec.how, axis), axis.in) + 1);
  }
  return static_cast<size_t>(words) * sizeof(int64_t);
}

__global__ void __launch_bounds__(kThreads)
    FindWeights(formula::Interpolation how, formula::InterpolatedAxis axis, AxisWeights to) {
  for (int64_t i = FirstElement(); i < to.out; i += ElementStep()) {
    const formula::Taps taps = formula::TapsOf(how, axis, i);
    const int64_t first = formula::Inside(taps.begin, to.in);
    to.first[i] = first;
    double* weights = to.weights + i * to.taps;
    for (int64_t k = 0; k < to.taps; ++k) weights[k] = 0;
    for (int64_t p = taps.begin; p < taps.end; ++p)
      weights[formula::Inside(p, to.in) - first] += taps.Weight(how, p);
  }
}

/// Terms of one position of the result along an axis: positions [begin, end) of the argument.
struct Terms {
  int64_t begin, end;
};

struct FromX {
  static __device__ Terms Of(const AxisWeights& axis, int64_t i) {
    const int64_t end = axis.first[i] + axis.taps;
    return {axis.first[i], end < axis.in ? end : axis.in};
  }
  /// Of position `at` of the argument in position i of the result.
  static __device__ double Weight(const AxisWeights& axis, int64_t i, int64_t at) {
    return axis.weights[i * axis.taps + at - axis.first[i]];
  }
  static __device__ int64_t argument(const AxisWeights& axis) { return axis.in; }
  static __device__ int64_t result(const AxisWeights& axis) { return axis.out; }
};

struct FromDy {
  /// The first position of y whose first tap lies behind position i of x.
  static __device__ int64_t Behind(const AxisWeights& axis, int64_t i) {
    int64_t low = 0, high = axis.out;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (axis.first[middle] > i) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
  static __device__ Terms Of(const AxisWeights& axis, int64_t i) {
    return {Behind(axis, i - axis.taps), Behind(axis, i)};
  }
  static __device__ double Weight(const AxisWeights& axis, int64_t i, int64_t at) {
    return axis.weights[at * axis.taps + i - axis.first[at]];
  }
  static __device__ int64_t argument(const AxisWeights& axis) { return axis.out; }
  static __device__ int64_t result(const AxisWeights& axis) { return axis.in; }
};

/// A thread has kLength neighbours, which `inner` and `size` count. Weights of 0 are left out, so
/// that elements without a share do not count, even if they are infinite.
template <class T, int kLength, class From>
__global__ void __launch_bounds__(kThreads)
    SumTaps(const T* in, Weights weights, int64_t inner, T* out, int64_t size) {
  const AxisWeights* axis = weights.axis;
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    int64_t at[kAxes], rest = i / inner;
    Terms terms[kAxes];
    for (int a = kAxes - 1; a >= 0; --a) {
      at[a] = rest % From::result(axis[a]);
      rest /= From::result(axis[a]);
      terms[a] = From::Of(axis[a], at[a]);
    }
    double sum[kLength] = {};
    for (int64_t p = terms[0].begin; p < terms[0].end; ++p) {
      const double plane = From::Weight(axis[0], at[0], p);
      const int64_t planes = rest * From::argument(axis[0]) + p;
      for (int64_t r = terms[1].begin; r < terms[1].end; ++r) {
        const double row = plane * From::Weight(axis[1], at[1], r);
        const int64_t rows = planes * From::argument(axis[1]) + r;
        for (int64_t c = terms[2].begin; c < terms[2].end; ++c) {
          const double weight = row * From::Weight(axis[2], at[2], c);
          if (weight == 0) continue;
          const int64_t column = rows * From::argument(axis[2]) + c;
          const auto values = LoadVector<T, kLength>(in + (column * inner + i % inner) * kLength);
#pragma unroll
          for (int j = 0; j < kLength; ++j)
            sum[j] += weight * static_cast<double>(Cast<ComputeType<T>>(values.v[j]));
        }
      }
    }
    Vector<T, kLength> result;
#pragma unroll
    for (int j = 0; j < kLength; ++j) result.v[j] = Cast<T>(sum[j]);
    StoreVector(out + i * kLength, result);
  }
}

/// Whether the images stay channels-last.
bool StaysLast(const InterpolationFields& spec) { return spec.layout && spec.first_axis >= 2; }

template <class From>
void Run(const InterpolationFields& spec, const char* op, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const int64_t size = execution.outputs[0].size();
  if (size == 0) return;
  const Weights weights = WeightsOf(spec, execution.workspace);
  for (int i = 0; i < kAxes; ++i)
    LaunchIndependent(FindWeights, GridFor(weights.axis[i].out, kThreads), kThreads, stream,
                      spec.how, spec.axis(i), weights.axis[i]);
  // Channels-last images have their channels behind the axes.
  const int64_t inner = spec.inner() * (StaysLast(spec) ? spec.x_shape[1] : 1);
  SwitchFloat(spec.dtype, op, [&]<class T>() {
    const T* in = execution.in<T>(0);
    T* out = execution.out<T>(0);
    constexpr int kLength = kVectorLength<T>;
    const auto launch = [&]<int kEach>() {
      LaunchIndependent(SumTaps<T, kEach, From>, GridFor(size / kEach, kThreads), kThreads, stream,
                        in, weights, inner / kEach, out, size / kEach);
    };
    if (inner % kLength == 0 && IsAligned(in) && IsAligned(out)) {
      launch.template operator()<kLength>();
    } else {
      launch.template operator()<1>();
    }
  });
}

void RunForward(const InterpolateSpec& spec, const Execution& execution) {
  Run<FromX>(spec, spec.op(), execution);
}
void RunBackward(const InterpolateBackwardSpec& spec, const Execution& execution) {
  Run<FromDy>(spec, spec.op(), execution);
}

ImageLayouts ForwardLayouts(const InterpolateSpec& spec) {
  const bool last = StaysLast(spec);
  return {{ImageLayout(last, spec.x_shape, spec.dtype)},
          {ImageLayout(last, spec.y_shape, spec.dtype)}};
}

ImageLayouts BackwardLayouts(const InterpolateBackwardSpec& spec) {
  const bool last = StaysLast(spec);
  return {{ImageLayout(last, spec.y_shape, spec.dtype)},
          {ImageLayout(last, spec.x_shape, spec.dtype)}};
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterImageKernels<InterpolateSpec, RunForward, ForwardLayouts, Workspace<InterpolateSpec>>();
  RegisterImageKernels<InterpolateBackwardSpec, RunBackward, BackwardLayouts,
                       Workspace<InterpolateBackwardSpec>>();
}

}  // namespace singa::cuda
