// Tile, repeat, upsample, roll, channel shuffle and pad: y[i0, i1, ...] is x[f0(i0), f1(i1), ...],
// or a constant.
// Backward sums, for each element of x, the elements to which it was copied. Along an axis, these
// positions are one or two arithmetic progressions.

#include <bit>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/image_plan.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/layout/axis_map_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

struct Axis {
  int64_t in, out;  ///< lengths
  int64_t first;    ///< as in AxisMapFields
  int64_t stride;   ///< of the argument: x forward, dy backward
};

/// One or two arithmetic progressions: start, start + step, ...
struct Copies {
  int64_t start[2], count[2], step;
  __device__ int64_t size() const { return count[0] + count[1]; }
  __device__ int64_t At(int64_t k) const {
    return k < count[0] ? start[0] + k * step : start[1] + (k - count[0]) * step;
  }
};

struct Axes {
  int rank;
  AxisMapKind kind;
  Axis axis[kMaxRank];

  /// As in AxisMapFields::Source.
  __device__ int64_t Source(const Axis& a, int64_t i) const {
    const int64_t j = i - a.first;
    switch (kind) {
      case AxisMapKind::kTile:
        return i % a.in;
      case AxisMapKind::kRepeat:
      case AxisMapKind::kUpsample:
        return i / a.first;
      case AxisMapKind::kRoll:
        return j < 0 ? j + a.in : j;
      case AxisMapKind::kShuffle:
        return i % a.first * (a.in / a.first) + i / a.first;
      case AxisMapKind::kPadConstant:
        return j >= 0 && j < a.in ? j : -1;
      case AxisMapKind::kPadEdge:
        return j < 0 ? 0 : j < a.in ? j : a.in - 1;
      case AxisMapKind::kPadWrap:
        return Residue(j, a.in);
      default: {
        if (a.in == 1) return 0;
        const int64_t period = 2 * (a.in - 1);
        const int64_t k = (j % period + period) % period;
        return k < a.in ? k : period - k;
      }
    }
  }

  /// Number of positions below `out` that are congruent to `residue` mod `period`.
  static __device__ int64_t Congruent(int64_t residue, int64_t period, int64_t out) {
    return residue < out ? (out - 1 - residue) / period + 1 : 0;
  }

  /// n mod period, never negative.
  static __device__ int64_t Residue(int64_t n, int64_t period) {
    return (n % period + period) % period;
  }

  /// [begin, end) clipped to [0, out), since padding may crop.
  static __device__ Copies Range(int64_t begin, int64_t end, int64_t out) {
    if (begin < 0) begin = 0;
    if (end > out) end = out;
    return {{begin, 0}, {begin < end ? end - begin : 0, 0}, 1};
  }

  /// All positions along the axis whose source is i.
  __device__ Copies CopiesOf(const Axis& a, int64_t i) const {
    switch (kind) {
      case AxisMapKind::kTile:
        return {{i, 0}, {a.first, 0}, a.in};
      case AxisMapKind::kRepeat:
      case AxisMapKind::kUpsample:
        return {{i * a.first, 0}, {a.first, 0}, 1};
      case AxisMapKind::kRoll:
        return {{(i + a.first) % a.in, 0}, {1, 0}, 1};
      case AxisMapKind::kShuffle: {
        const int64_t length = a.in / a.first;  // of a group
        return {{i % length * a.first + i / length, 0}, {1, 0}, 1};
      }
      case AxisMapKind::kPadConstant:
        return Range(i + a.first, i + a.first + 1, a.out);
      case AxisMapKind::kPadEdge:
        return Range(i == 0 ? 0 : i + a.first, i == a.in - 1 ? a.out : i + a.first + 1, a.out);
      case AxisMapKind::kPadWrap: {
        const int64_t one = Residue(i + a.first, a.in);
        return {{one, 0}, {Congruent(one, a.in, a.out), 0}, a.in};
      }
      default: {  // reflect: i and its mirror image, periodically
        if (a.in == 1) return {{0, 0}, {a.out, 0}, 1};
        const int64_t period = 2 * (a.in - 1);
        const int64_t one = Residue(i + a.first, period);
        const int64_t mirrored = Residue(a.first - i, period);
        const bool same = one == mirrored;
        return {{one, mirrored},
                {Congruent(one, period, a.out), same ? 0 : Congruent(mirrored, period, a.out)},
                period};
      }
    }
  }
};

/// The axes in memory order of the result, which is that of the argument.
Axes AxesOf(const AxisMapFields& spec, const Tensor& argument) {
  Axes axes{spec.x_shape.rank(), spec.kind, {}};
  const Strides strides = StridesOf(argument, spec.layout != nullptr);
  for (int k = 0; k < axes.rank; ++k) {
    // Of a layout, channels come last.
    const int i = !spec.layout || k == 0 ? k : k + 1 == axes.rank ? 1 : k + 1;
    axes.axis[k] = {spec.x_shape[i], spec.OutLength(i), spec.first[i], strides[i]};
  }
  return axes;
}

template <class U>
__global__ void __launch_bounds__(kThreads)
    Forward(Axes axes, const U* x, U constant, U* y, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    int64_t rest = i, at = 0;
    bool inside = true;
    for (int k = axes.rank - 1; k >= 0; --k) {
      const Axis& axis = axes.axis[k];
      const int64_t source = axes.Source(axis, rest % axis.out);
      rest /= axis.out;
      inside = inside && source >= 0;
      at += source * axis.stride;
    }
    y[i] = inside ? x[at] : constant;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) Backward(Axes axes, const T* dy, T* dx, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    int64_t rest = i, count = 1;
    Copies copies[kMaxRank];
    for (int k = axes.rank - 1; k >= 0; --k) {
      copies[k] = axes.CopiesOf(axes.axis[k], rest % axes.axis[k].in);
      rest /= axes.axis[k].in;
      count *= copies[k].size();
    }
    double sum = 0;
    for (int64_t c = 0; c < count; ++c) {
      int64_t which = c, at = 0;
      for (int k = axes.rank - 1; k >= 0; --k) {
        at += copies[k].At(which % copies[k].size()) * axes.axis[k].stride;
        which /= copies[k].size();
      }
      sum += static_cast<double>(Cast<ComputeType<T>>(dy[at]));
    }
    dx[i] = Cast<T>(sum);
  }
}

void Run(const AxisMapSpec& spec, const Execution& execution) {
  const int64_t size = execution.outputs[0].size();
  if (size == 0) return;
  const Axes axes = AxesOf(spec, execution.inputs[0]);
  SwitchAll(spec.dtype, spec.op(), [&]<class T>() {
    const T typed = Convert<T>(execution.scalars.v[0]);
    SwitchSize(SizeOf(spec.dtype), [&]<class U>() {
      if constexpr (sizeof(U) == sizeof(T))
        LaunchIndependent(Forward<U>, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
                          axes, execution.in<U>(0), std::bit_cast<U>(typed), execution.out<U>(0),
                          size);
    });
  });
}

void RunBackward(const AxisMapBackwardSpec& spec, const Execution& execution) {
  const int64_t size = execution.outputs[0].size();
  const Axes axes = AxesOf(spec, execution.inputs[0]);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(Backward<T>, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
                      axes, execution.in<T>(0), execution.out<T>(0), size);
  });
}

ImageLayouts ForwardLayouts(const AxisMapSpec& spec) {
  const bool last = spec.layout != nullptr;
  return {{ImageLayout(last, spec.x_shape, spec.dtype)},
          {ImageLayout(last, spec.OutShape(), spec.dtype)}};
}

ImageLayouts BackwardLayouts(const AxisMapBackwardSpec& spec) {
  const bool last = spec.layout != nullptr;
  return {{ImageLayout(last, spec.OutShape(), spec.dtype)},
          {ImageLayout(last, spec.x_shape, spec.dtype)}};
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterImageKernels<AxisMapSpec, Run, ForwardLayouts>();
  RegisterImageKernels<AxisMapBackwardSpec, RunBackward, BackwardLayouts>();
}

}  // namespace singa::cuda
