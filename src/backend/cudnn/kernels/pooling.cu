// Pooling. One thread for each output of forward, and for each element of dx: backward collects
// from the windows over an element, in their order, so it needs no atomic addition.
//
// Images are plain or channels-last, which is a matter of strides: neighbouring threads have
// neighbouring elements in memory either way.

#include <algorithm>
#include <limits>

#include "backend/cudnn/kernels/element.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/image_plan.h"
#include "model/operation/pooling_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

struct Window {
  int64_t size, windows, kernel, stride, pad, pad_after, dilation;

  __device__ int64_t Start(int64_t o) const { return o * stride - pad; }
  /// First tap of window o that lies at `from` or behind; kernel where none does.
  __device__ int64_t TapsBefore(int64_t o, int64_t from) const {
    const int64_t distance = from - Start(o);
    if (distance <= 0) return 0;
    const int64_t taps = (distance + dilation - 1) / dilation;
    return taps < kernel ? taps : kernel;
  }
  __device__ int64_t FirstTap(int64_t o) const { return TapsBefore(o, 0); }
  __device__ int64_t LastTap(int64_t o) const { return TapsBefore(o, size); }
  /// Elements that an average over window o counts.
  __device__ int64_t Divisor(int64_t o, bool with_padding) const {
    return with_padding ? TapsBefore(o, size + pad_after) : LastTap(o) - FirstTap(o);
  }
  /// Windows within whose span position i lies: [first, last).
  __device__ int64_t FirstOver(int64_t i) const {
    const int64_t before = i + pad - dilation * (kernel - 1);
    return before <= 0 ? 0 : (before + stride - 1) / stride;
  }
  __device__ int64_t LastOver(int64_t i) const {
    const int64_t last = (i + pad) / stride + 1;
    return last < windows ? last : windows;
  }
};

struct Pooling {
  Window rows, columns;
  PoolMode mode;
  int64_t images, channels;
  bool channels_last;

  struct Place {
    int64_t image, channel, row, column;
  };
  /// Of element i in memory of an array of rows × columns.
  __device__ Place Locate(int64_t i, int64_t height, int64_t width) const {
    Place p;
    if (channels_last) {
      p.channel = i % channels;
      i /= channels;
    }
    p.column = i % width;
    i /= width;
    p.row = i % height;
    i /= height;
    if (!channels_last) {
      p.channel = i % channels;
      i /= channels;
    }
    p.image = i;
    return p;
  }
  /// First element of the plane that a place is in, and the distance of pixels in it.
  __device__ int64_t Plane(const Place& p, int64_t pixels) const {
    return channels_last ? p.image * pixels * channels + p.channel
                         : (p.image * channels + p.channel) * pixels;
  }
  __device__ int64_t step() const { return channels_last ? channels : 1; }
};

Pooling PoolingOf(const Recorder& r, PoolMode mode, bool channels_last) {
  return {{r.height, r.conv_height, r.kernel_h, r.stride_h, r.pad_top, r.pad_bottom, r.dilation_h},
          {r.width, r.conv_width, r.kernel_w, r.stride_w, r.pad_left, r.pad_right, r.dilation_w},
          mode,
          r.batchsize,
          r.in_channels,
          channels_last};
}

/// The first largest element of a window, or the first NaN; -1 where it sees none. `x` is its
/// plane.
template <class T>
__device__ int64_t FindMax(const Pooling& p, const T* x, int64_t row, int64_t column,
                           ComputeType<T>* most) {
  using C = ComputeType<T>;
  C best = -std::numeric_limits<C>::infinity();
  int64_t position = -1;
  const int64_t first_row = p.rows.FirstTap(row), last_row = p.rows.LastTap(row);
  const int64_t first_column = p.columns.FirstTap(column), last_column = p.columns.LastTap(column);
  for (int64_t kh = first_row; kh < last_row; ++kh) {
    const int64_t at = (p.rows.Start(row) + kh * p.rows.dilation) * p.columns.size;
    for (int64_t kw = first_column; kw < last_column; ++kw) {
      const int64_t pixel = at + p.columns.Start(column) + kw * p.columns.dilation;
      const C value = Cast<C>(x[pixel * p.step()]);
      const bool better = position < 0 || value > best || (value != value && best == best);
      if (better) {
        best = value;
        position = pixel;
      }
    }
  }
  *most = best;
  return position;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    ForwardMax(Pooling p, const T* x, T* y, int32_t* position, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const auto place = p.Locate(i, p.rows.windows, p.columns.windows);
    ComputeType<T> most;
    const int64_t at = FindMax(p, x + p.Plane(place, p.rows.size * p.columns.size), place.row,
                               place.column, &most);
    if (y) y[i] = Cast<T>(most);
    if (position) position[i] = static_cast<int32_t>(at);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    ForwardAverage(Pooling p, const T* x, T* y, int64_t size) {
  const bool with_padding = p.mode == PoolMode::kAverageIncludePad;
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const auto place = p.Locate(i, p.rows.windows, p.columns.windows);
    const T* plane = x + p.Plane(place, p.rows.size * p.columns.size);
    double sum = 0;
    const int64_t last_row = p.rows.LastTap(place.row);
    const int64_t last_column = p.columns.LastTap(place.column);
    for (int64_t kh = p.rows.FirstTap(place.row); kh < last_row; ++kh) {
      const int64_t at = (p.rows.Start(place.row) + kh * p.rows.dilation) * p.columns.size;
      for (int64_t kw = p.columns.FirstTap(place.column); kw < last_column; ++kw) {
        const int64_t pixel = at + p.columns.Start(place.column) + kw * p.columns.dilation;
        sum += static_cast<double>(Cast<ComputeType<T>>(plane[pixel * p.step()]));
      }
    }
    const int64_t divisor =
        p.rows.Divisor(place.row, with_padding) * p.columns.Divisor(place.column, with_padding);
    y[i] = Cast<T>(divisor > 0 ? sum / static_cast<double>(divisor) : 0.0);
  }
}

/// dx[i] = Σ over the windows that see i of their share; `position` of a maximum, else null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    Backward(Pooling p, const T* dy, const int32_t* position, T* dx, int64_t size) {
  using C = ComputeType<T>;
  const bool with_padding = p.mode == PoolMode::kAverageIncludePad;
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const auto place = p.Locate(i, p.rows.size, p.columns.size);
    const int64_t plane = p.Plane(place, p.rows.windows * p.columns.windows);
    const int64_t own = place.row * p.columns.size + place.column;
    const int64_t last_row = p.rows.LastOver(place.row);
    const int64_t last_column = p.columns.LastOver(place.column);
    C sum = 0;
    for (int64_t oh = p.rows.FirstOver(place.row); oh < last_row; ++oh) {
      if ((place.row - p.rows.Start(oh)) % p.rows.dilation != 0) continue;
      for (int64_t ow = p.columns.FirstOver(place.column); ow < last_column; ++ow) {
        if ((place.column - p.columns.Start(ow)) % p.columns.dilation != 0) continue;
        const int64_t window = plane + (oh * p.columns.windows + ow) * p.step();
        if (position) {
          if (position[window] == own) sum += Cast<C>(dy[window]);
        } else {
          const int64_t divisor =
              p.rows.Divisor(oh, with_padding) * p.columns.Divisor(ow, with_padding);
          sum += Cast<C>(dy[window]) / static_cast<C>(divisor > 1 ? divisor : 1);
        }
      }
    }
    dx[i] = Cast<T>(sum);
  }
}

bool ChannelsLast(const PoolingForwardSpec& spec) { return spec.x_layout != nullptr; }
/// As x; an average may do without x, but dy lies as its result did.
bool ChannelsLast(const PoolingBackwardSpec& spec) {
  return spec.x_layout || (spec.mode != PoolMode::kMax && spec.dy_layout);
}

void RunForward(const PoolingForwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Pooling p = PoolingOf(spec.geometry, spec.mode, ChannelsLast(spec));
  const int64_t size = spec.geometry.output_shape().Count();
  const dim3 grid = GridFor(size, kThreads);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    if (spec.mode == PoolMode::kMax) {
      LaunchIndependent(ForwardMax<T>, grid, kThreads, stream, p, execution.in<T>(0),
                        execution.out<T>(0), spec.save ? execution.out<int32_t>(1) : nullptr, size);
    } else {
      LaunchIndependent(ForwardAverage<T>, grid, kThreads, stream, p, execution.in<T>(0),
                        execution.out<T>(0), size);
    }
  });
}

void RunBackward(const PoolingBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const Pooling p = PoolingOf(spec.geometry, spec.mode, ChannelsLast(spec));
  const int64_t outputs = spec.geometry.output_shape().Count();
  const int64_t size = spec.geometry.input_shape().Count();
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const int32_t* position = nullptr;
    if (spec.mode == PoolMode::kMax) {
      if (spec.saved) {
        position = execution.in<int32_t>(2);
      } else {
        auto* found = static_cast<int32_t*>(execution.workspace);
        LaunchIndependent(ForwardMax<T>, GridFor(outputs, kThreads), kThreads, stream, p,
                          execution.in<T>(1), nullptr, found, outputs);
        position = found;
      }
    }
    LaunchIndependent(Backward<T>, GridFor(size, kThreads), kThreads, stream, p, execution.in<T>(0),
                      position, execution.out<T>(0), size);
  });
}

size_t BackwardWorkspace(const PoolingBackwardSpec& spec) {
  if (spec.mode != PoolMode::kMax || spec.saved) return 0;
  return static_cast<size_t>(spec.geometry.output_shape().Count()) * sizeof(int32_t);
}

// x -> y, position
ImageLayouts ForwardLayouts(const PoolingForwardSpec& spec) {
  const bool last = ChannelsLast(spec);
  const Shape x = spec.geometry.input_shape(), y = spec.geometry.output_shape();
  return {{ImageLayout(last, x, spec.dtype)},
          {ImageLayout(last, y, spec.dtype), ImageLayout(last, y, kInt32)}};
}
// dy, x, position -> dx
ImageLayouts BackwardLayouts(const PoolingBackwardSpec& spec) {
  const bool last = ChannelsLast(spec);
  const Shape y = spec.geometry.output_shape();
  const LayoutPtr x = ImageLayout(last, spec.geometry.input_shape(), spec.dtype);
  return {{ImageLayout(last, y, spec.dtype), x, ImageLayout(last, y, kInt32)}, {x}};
}

}  // namespace

void RegisterPooling() {
  RegisterImageKernels<PoolingForwardSpec, RunForward, ForwardLayouts>();
  RegisterImageKernels<PoolingBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
