// Pooling. One thread per output in forward, and per element of dx in backward. Backward gathers
// from the windows over an element in a fixed order, so it needs no atomic additions.
//
// Plain and channels-last images differ in strides only; neighbouring threads have neighbouring
// elements either way. With channels-last, a thread has 16 bytes of neighbouring channels, which
// share a window. Positions use 32-bit arithmetic and Divisors: 64-bit arithmetic would take
// several times as long as the memory accesses. Larger tensors take several launches, each for some
// images.

#include <algorithm>
#include <limits>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/image_plan.h"
#include "model/operation/pooling/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// n / d for n >= 0.
__device__ __forceinline__ int Quotient(int n, const Divisor& d) {
  return static_cast<int>(d.Divide(static_cast<uint32_t>(n)));
}

/// The windows along one axis (WindowAxis).
struct Window {
  int size, windows, kernel, pad, pad_after;
  bool adaptive;
  Divisor stride, dilation, by_size, by_windows;

  Window(const Recorder::Axis& axis, bool adaptive)
      : size(static_cast<int>(axis.size)),
        windows(static_cast<int>(axis.windows)),
        kernel(static_cast<int>(axis.kernel)),
        pad(static_cast<int>(axis.before)),
        pad_after(static_cast<int>(axis.after)),
        adaptive(adaptive),
        stride(axis.stride),
        dilation(axis.dilation),
        by_size(axis.size),
        by_windows(axis.windows) {}

  /// n · a / b, rounded down and up.
  __device__ static int Floor(int n, int a, int b) { return static_cast<int>(int64_t{n} * a / b); }
  __device__ static int Ceil(int n, int a, int b) {
    return static_cast<int>((int64_t{n} * a + b - 1) / b);
  }
  __device__ int Start(int o) const {
    return adaptive ? Floor(o, size, windows) : o * static_cast<int>(stride.value()) - pad;
  }
  __device__ int Tap(int k) const { return k * static_cast<int>(dilation.value()); }
  /// Number of taps of window o before position `from`.
  __device__ int TapsBefore(int o, int from) const {
    const int distance = from - Start(o);
    if (distance <= 0) return 0;
    const int taps = Quotient(distance + Tap(1) - 1, dilation);
    return taps < kernel ? taps : kernel;
  }
  __device__ int FirstTap(int o) const { return adaptive ? 0 : TapsBefore(o, 0); }
  __device__ int LastTap(int o) const {
    return adaptive ? Ceil(o + 1, size, windows) - Start(o) : TapsBefore(o, size);
  }
  /// Divisor of the average over window o.
  __device__ int Counted(int o, bool with_padding) const {
    return with_padding && !adaptive ? TapsBefore(o, size + pad_after) : LastTap(o) - FirstTap(o);
  }
  /// The windows whose span contains position i: [first, last).
  __device__ int FirstOver(int i) const {
    if (adaptive) return Floor(i, windows, size);
    const int before = i + pad - Tap(kernel - 1);
    return before <= 0 ? 0 : Quotient(before + static_cast<int>(stride.value()) - 1, stride);
  }
  __device__ int LastOver(int i) const {
    if (adaptive) return Ceil(i + 1, windows, size);
    const int last = Quotient(i + pad, stride) + 1;
    return last < windows ? last : windows;
  }
  /// Whether window o, one of these, has a tap at i.
  __device__ bool Sees(int o, int i) const {
    const int distance = i - Start(o);
    return Tap(Quotient(distance, dilation)) == distance;
  }
};

struct Pooling {
  Window planes, rows, columns;
  PoolMode mode;
  bool channels_last;
  int neighbours;   ///< channels per thread
  Divisor threads;  ///< threads that share a pixel's channels

  struct Place {
    int image, channel, plane, row, column;
  };
  /// Position of the thread's first element, in images of this size.
  __device__ Place Locate(int64_t i, const Divisor& depth, const Divisor& height,
                          const Divisor& width) const {
    auto rest = static_cast<uint32_t>(i);
    const auto take = [&](const Divisor& length) {
      const uint32_t quotient = length.Divide(rest);
      const auto index = static_cast<int>(rest - quotient * length.value());
      rest = quotient;
      return index;
    };
    Place p;
    if (channels_last) p.channel = take(threads) * neighbours;
    p.column = take(width);
    p.row = take(height);
    p.plane = depth.value() > 1 ? take(depth) : 0;
    if (!channels_last) p.channel = take(threads);
    p.image = static_cast<int>(rest);
    return p;
  }
  __device__ Place LocateWindow(int64_t i) const {
    return Locate(i, planes.by_windows, rows.by_windows, columns.by_windows);
  }
  __device__ Place LocateElement(int64_t i) const {
    return Locate(i, planes.by_size, rows.by_size, columns.by_size);
  }
  /// Offset of the channel that contains a position. step() is the distance between its pixels.
  __device__ int64_t Channel(const Place& p, int64_t pixels) const {
    const int64_t count = channels();
    return channels_last ? p.image * pixels * count + p.channel
                         : (p.image * count + p.channel) * pixels;
  }
  __device__ int64_t ElementChannel(const Place& p) const {
    return Channel(p, int64_t{planes.size} * rows.size * columns.size);
  }
  __device__ int64_t WindowChannel(const Place& p) const {
    return Channel(p, int64_t{planes.windows} * rows.windows * columns.windows);
  }
  /// Divisor of the average over a window.
  __device__ int Counted(int plane, int row, int column) const {
    const bool with_padding = mode == PoolMode::kAverageIncludePad;
    return planes.Counted(plane, with_padding) * rows.Counted(row, with_padding) *
           columns.Counted(column, with_padding);
  }
  /// Calls body(pixel) for the elements of a window inside the input, in their order.
  template <class Body>
  __device__ __forceinline__ void ForTaps(const Place& o, const Body& body) const {
    const int last_plane = planes.LastTap(o.plane), last_row = rows.LastTap(o.row);
    const int first_column = columns.FirstTap(o.column), last_column = columns.LastTap(o.column);
    for (int kd = planes.FirstTap(o.plane); kd < last_plane; ++kd) {
      const int plane = (planes.Start(o.plane) + planes.Tap(kd)) * rows.size;
      for (int kh = rows.FirstTap(o.row); kh < last_row; ++kh) {
        const int row = (plane + rows.Start(o.row) + rows.Tap(kh)) * columns.size;
        for (int kw = first_column; kw < last_column; ++kw)
          body(row + columns.Start(o.column) + columns.Tap(kw));
      }
    }
  }
  __device__ int64_t channels() const { return int64_t{threads.value()} * neighbours; }
  __device__ int64_t step() const { return channels_last ? channels() : 1; }
};

Pooling PoolingOf(const Recorder& r, PoolMode mode, bool channels_last, int neighbours) {
  const auto& axes = r.axes;
  return {Window(axes[0], r.adaptive),
          Window(axes[1], r.adaptive),
          Window(axes[2], r.adaptive),
          mode,
          channels_last,
          neighbours,
          Divisor(r.in_channels / neighbours)};
}

/// Calls launch<kLength>(pooling). A thread gets 16 bytes of channels if they are contiguous and
/// aligned, else one; float64 always one.
template <class T, class F>
void WithNeighbours(const Recorder& r, PoolMode mode, bool channels_last,
                    std::initializer_list<const T*> arrays, const int32_t* position,
                    const F& launch) {
  constexpr int kLength = sizeof(T) < 8 ? kVectorLength<T> : 1;
  bool vectors = channels_last && r.in_channels % kLength == 0 &&
                 IsAligned(position, sizeof(Vector<int32_t, kLength>));
  for (const T* p : arrays) vectors = vectors && IsAligned(p);
  if (vectors) {
    launch.template operator()<kLength>(PoolingOf(r, mode, channels_last, kLength));
  } else {
    launch.template operator()<1>(PoolingOf(r, mode, channels_last, 1));
  }
}

/// A range of a call's images.
struct Images {
  int64_t inputs, outputs;            ///< elements
  int64_t first_input, first_output;  ///< offsets of the first elements
};

/// Calls f(images) for ranges of images with fewer than 2^31 elements.
template <class F>
void ForImages(const Recorder& r, const F& f) {
  const int64_t input = r.in_channels * r.pixels();
  const int64_t output = r.in_channels * r.conv_pixels();
  const int64_t larger = std::max<int64_t>({input, output, 1});
  Check(FitsIndex32(larger), "Pooling", "an image has ", larger, " elements, more than 2^31");
  const int64_t most = kMostIndex32 / larger;
  for (int64_t first = 0; first < r.batchsize; first += most) {
    const int64_t count = std::min(most, r.batchsize - first);
    f(Images{count * input, count * output, first * input, first * output});
  }
}

/// For neighbouring channels: the maximum of a window, or its first NaN, and its position, the
/// first of equals; −1 if the window is empty.
template <class T, int kLength>
struct Maxima {
  using C = ComputeType<T>;
  C most[kLength];
  Vector<int32_t, kLength> position;

  /// `x`: the channel of the window.
  __device__ __forceinline__ Maxima(const Pooling& p, const T* x, const Pooling::Place& o) {
#pragma unroll
    for (int c = 0; c < kLength; ++c) {
      most[c] = -std::numeric_limits<C>::infinity();
      position.v[c] = -1;
    }
    p.ForTaps(o, [&](int pixel) {
      const auto values = LoadVector<T, kLength>(x + pixel * p.step());
#pragma unroll
      for (int c = 0; c < kLength; ++c) {
        const C value = Cast<C>(values.v[c]);
        const bool better =
            position.v[c] < 0 || value > most[c] || (value != value && most[c] == most[c]);
        if (better) {
          most[c] = value;
          position.v[c] = pixel;
        }
      }
    });
  }
};

template <class T, int kLength>
__global__ void __launch_bounds__(kThreads)
    ForwardMax(Pooling p, const T* x, T* y, int32_t* position, int64_t threads) {
  for (int64_t i = FirstElement(); i < threads; i += ElementStep()) {
    const auto place = p.LocateWindow(i);
    const Maxima<T, kLength> maxima(p, x + p.ElementChannel(place), place);
    if (y) {
      Vector<T, kLength> out;
#pragma unroll
      for (int c = 0; c < kLength; ++c) out.v[c] = Cast<T>(maxima.most[c]);
      StoreVector(y + i * kLength, out);
    }
    if (position) StoreVector(position + i * kLength, maxima.position);
  }
}

template <class T, int kLength>
__global__ void __launch_bounds__(kThreads)
    ForwardAverage(Pooling p, const T* x, T* y, int64_t threads) {
  for (int64_t i = FirstElement(); i < threads; i += ElementStep()) {
    const auto place = p.LocateWindow(i);
    const T* channel = x + p.ElementChannel(place);
    double sum[kLength] = {};
    p.ForTaps(place, [&](int pixel) {
      const auto values = LoadVector<T, kLength>(channel + pixel * p.step());
#pragma unroll
      for (int c = 0; c < kLength; ++c)
        sum[c] += static_cast<double>(Cast<ComputeType<T>>(values.v[c]));
    });
    const int divisor = p.Counted(place.plane, place.row, place.column);
    Vector<T, kLength> out;
#pragma unroll
    for (int c = 0; c < kLength; ++c)
      out.v[c] = Cast<T>(sum[c] / static_cast<double>(divisor > 1 ? divisor : 1));
    StoreVector(y + i * kLength, out);
  }
}

/// dx[i] = Σ of the shares of all windows that cover i. `position` holds the maxima; null for
/// averages.
template <class T, int kLength>
__global__ void __launch_bounds__(kThreads)
    Backward(Pooling p, const T* dy, const int32_t* position, T* dx, int64_t threads) {
  using C = ComputeType<T>;
  for (int64_t i = FirstElement(); i < threads; i += ElementStep()) {
    const auto place = p.LocateElement(i);
    const int64_t channel = p.WindowChannel(place);
    const int own = (place.plane * p.rows.size + place.row) * p.columns.size + place.column;
    const int last_plane = p.planes.LastOver(place.plane);
    const int last_row = p.rows.LastOver(place.row);
    const int last_column = p.columns.LastOver(place.column);
    C sum[kLength] = {};
    for (int od = p.planes.FirstOver(place.plane); od < last_plane; ++od) {
      if (!p.planes.Sees(od, place.plane)) continue;
      for (int oh = p.rows.FirstOver(place.row); oh < last_row; ++oh) {
        if (!p.rows.Sees(oh, place.row)) continue;
        for (int ow = p.columns.FirstOver(place.column); ow < last_column; ++ow) {
          if (!p.columns.Sees(ow, place.column)) continue;
          const int number = (od * p.rows.windows + oh) * p.columns.windows + ow;
          const int64_t window = channel + number * p.step();
          const auto gradient = LoadVector<T, kLength>(dy + window);
          if (position) {
            const auto chosen = LoadVector<int32_t, kLength>(position + window);
#pragma unroll
            for (int c = 0; c < kLength; ++c)
              if (chosen.v[c] == own) sum[c] += Cast<C>(gradient.v[c]);
          } else {
            const int divisor = p.Counted(od, oh, ow);
#pragma unroll
            for (int c = 0; c < kLength; ++c)
              sum[c] += Cast<C>(gradient.v[c]) / static_cast<C>(divisor > 1 ? divisor : 1);
          }
        }
      }
    }
    Vector<T, kLength> out;
#pragma unroll
    for (int c = 0; c < kLength; ++c) out.v[c] = Cast<T>(sum[c]);
    StoreVector(dx + i * kLength, out);
  }
}

bool ChannelsLast(const PoolingForwardSpec& spec) { return spec.x_layout != nullptr; }
/// As for x. An average may lack x, but dy has the layout of its result.
bool ChannelsLast(const PoolingBackwardSpec& spec) {
  return spec.x_layout || (spec.mode != PoolMode::kMax && spec.dy_layout);
}

void RunForward(const PoolingForwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ForImages(spec.geometry, [&](const Images& images) {
      const T* x = execution.in<T>(0) + images.first_input;
      T* y = execution.out<T>(0) + images.first_output;
      int32_t* position = spec.mode == PoolMode::kMax && spec.save
                              ? execution.out<int32_t>(1) + images.first_output
                              : nullptr;
      WithNeighbours<T>(spec.geometry, spec.mode, ChannelsLast(spec), {x, y}, position,
                        [&]<int kLength>(const Pooling& p) {
                          const int64_t threads = images.outputs / kLength;
                          const dim3 grid = GridFor(threads, kThreads);
                          if (spec.mode == PoolMode::kMax) {
                            LaunchIndependent(ForwardMax<T, kLength>, grid, kThreads, stream, p, x,
                                              y, position, threads);
                          } else {
                            LaunchIndependent(ForwardAverage<T, kLength>, grid, kThreads, stream, p,
                                              x, y, threads);
                          }
                        });
    });
  });
}

void RunBackward(const PoolingBackwardSpec& spec, const Execution& execution) {
  const Stream stream = StreamOf(execution.device);
  const bool max = spec.mode == PoolMode::kMax;
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    ForImages(spec.geometry, [&](const Images& images) {
      const T* dy = execution.in<T>(0) + images.first_output;
      const T* x = max && !spec.saved ? execution.in<T>(1) + images.first_input : nullptr;
      T* dx = execution.out<T>(0) + images.first_input;
      int32_t* found =
          x ? static_cast<int32_t*>(execution.workspace) + images.first_output : nullptr;
      const int32_t* position =
          max && spec.saved ? execution.in<int32_t>(2) + images.first_output : found;
      WithNeighbours<T>(spec.geometry, spec.mode, ChannelsLast(spec), {dy, x, dx}, position,
                        [&]<int kLength>(const Pooling& p) {
                          const int64_t windows = images.outputs / kLength,
                                        elements = images.inputs / kLength;
                          if (x)
                            LaunchIndependent(ForwardMax<T, kLength>, GridFor(windows, kThreads),
                                              kThreads, stream, p, x, nullptr, found, windows);
                          LaunchIndependent(Backward<T, kLength>, GridFor(elements, kThreads),
                                            kThreads, stream, p, dy, position, dx, elements);
                        });
    });
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

SINGA_KERNELS(cuda) {
  RegisterImageKernels<PoolingForwardSpec, RunForward, ForwardLayouts>();
  RegisterImageKernels<PoolingBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
