// Pooling. One thread for each output of forward, and for each element of dx: backward collects
// from the windows over an element, in their order, so it needs no atomic addition.
//
// Images are plain or channels-last, which is a matter of strides: neighbouring threads have
// neighbouring elements in memory either way. Channels-last a thread has several neighbouring
// channels, 16 bytes of them: they have their window in common. Where an element lies is counted in
// 32 bits, and divided by Divisors: in 64 bits that would take several times as long as memory
// does. What has more elements goes in several launches, some images each.

#include <algorithm>
#include <limits>

#include "backend/cudnn/kernels/element.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/image_plan.h"
#include "model/operation/pooling_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// n / d, of what is not negative.
__device__ __forceinline__ int Quotient(int n, const Divisor& d) {
  return static_cast<int>(d.Divide(static_cast<uint32_t>(n)));
}

struct Window {
  int size, windows, kernel, pad, pad_after;
  Divisor stride, dilation, by_size, by_windows;

  Window(int64_t size, int64_t windows, int64_t kernel, int64_t stride, int64_t pad,
         int64_t pad_after, int64_t dilation)
      : size(static_cast<int>(size)),
        windows(static_cast<int>(windows)),
        kernel(static_cast<int>(kernel)),
        pad(static_cast<int>(pad)),
        pad_after(static_cast<int>(pad_after)),
        stride(stride),
        dilation(dilation),
        by_size(size),
        by_windows(windows) {}

  __device__ int Start(int o) const { return o * static_cast<int>(stride.value()) - pad; }
  __device__ int Tap(int k) const { return k * static_cast<int>(dilation.value()); }
  /// First tap of window o that lies at `from` or behind; kernel where none does.
  __device__ int TapsBefore(int o, int from) const {
    const int distance = from - Start(o);
    if (distance <= 0) return 0;
    const int taps = Quotient(distance + Tap(1) - 1, dilation);
    return taps < kernel ? taps : kernel;
  }
  __device__ int FirstTap(int o) const { return TapsBefore(o, 0); }
  __device__ int LastTap(int o) const { return TapsBefore(o, size); }
  /// Elements that an average over window o counts.
  __device__ int Counted(int o, bool with_padding) const {
    return with_padding ? TapsBefore(o, size + pad_after) : LastTap(o) - FirstTap(o);
  }
  /// Windows within whose span position i lies: [first, last).
  __device__ int FirstOver(int i) const {
    const int before = i + pad - Tap(kernel - 1);
    return before <= 0 ? 0 : Quotient(before + static_cast<int>(stride.value()) - 1, stride);
  }
  __device__ int LastOver(int i) const {
    const int last = Quotient(i + pad, stride) + 1;
    return last < windows ? last : windows;
  }
  /// Whether window o, one of these, has a tap there.
  __device__ bool Sees(int o, int i) const {
    const int distance = i - Start(o);
    return Tap(Quotient(distance, dilation)) == distance;
  }
};

struct Pooling {
  Window rows, columns;
  PoolMode mode;
  bool channels_last;
  int neighbours;   ///< channels of a thread
  Divisor threads;  ///< that share the channels of a pixel

  struct Place {
    int image, channel, row, column;
  };
  /// Of the thread's elements: the first one, in memory of an array of rows × columns.
  __device__ Place Locate(int64_t i, const Divisor& height, const Divisor& width) const {
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
    if (!channels_last) p.channel = take(threads);
    p.image = static_cast<int>(rest);
    return p;
  }
  __device__ Place LocateWindow(int64_t i) const {
    return Locate(i, rows.by_windows, columns.by_windows);
  }
  __device__ Place LocateElement(int64_t i) const {
    return Locate(i, rows.by_size, columns.by_size);
  }
  /// First element of the plane that a place is in, and the distance of pixels in it.
  __device__ int64_t Plane(const Place& p, int64_t pixels) const {
    const int64_t count = channels();
    return channels_last ? p.image * pixels * count + p.channel
                         : (p.image * count + p.channel) * pixels;
  }
  __device__ int64_t ElementPlane(const Place& p) const {
    return Plane(p, int64_t{rows.size} * columns.size);
  }
  __device__ int64_t WindowPlane(const Place& p) const {
    return Plane(p, int64_t{rows.windows} * columns.windows);
  }
  __device__ int64_t channels() const { return int64_t{threads.value()} * neighbours; }
  __device__ int64_t step() const { return channels_last ? channels() : 1; }
};

Pooling PoolingOf(const Recorder& r, PoolMode mode, bool channels_last, int neighbours) {
  return {{r.height, r.conv_height, r.kernel_h, r.stride_h, r.pad_top, r.pad_bottom, r.dilation_h},
          {r.width, r.conv_width, r.kernel_w, r.stride_w, r.pad_left, r.pad_right, r.dilation_w},
          mode,
          channels_last,
          neighbours,
          Divisor(r.in_channels / neighbours)};
}

/// Calls launch<kLength>(pooling): with 16 bytes of channels for a thread where they lie side by
/// side and the addresses allow it; one double at a time.
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

/// Some images of a call.
struct Images {
  int64_t inputs, outputs;            ///< elements
  int64_t first_input, first_output;  ///< where they begin
};

/// Calls f(images) for as many images at a time as 32 bits can count the elements of.
template <class F>
void ForImages(const Recorder& r, const F& f) {
  const int64_t input = r.in_channels * r.height * r.width;
  const int64_t output = r.in_channels * r.conv_height * r.conv_width;
  const int64_t larger = std::max<int64_t>({input, output, 1});
  Check(FitsIndex32(larger), "Pooling", "an image has ", larger, " elements, more than 2^31");
  const int64_t most = kMostIndex32 / larger;
  for (int64_t first = 0; first < r.batchsize; first += most) {
    const int64_t count = std::min(most, r.batchsize - first);
    f(Images{count * input, count * output, first * input, first * output});
  }
}

/// The first largest element of a window, or the first NaN, and where it lies; −1 where the window
/// sees none. Of neighbouring channels.
template <class T, int kLength>
struct Maxima {
  using C = ComputeType<T>;
  C most[kLength];
  Vector<int32_t, kLength> position;

  /// `x`: the plane of the window.
  __device__ __forceinline__ Maxima(const Pooling& p, const T* x, int row, int column) {
#pragma unroll
    for (int c = 0; c < kLength; ++c) {
      most[c] = -std::numeric_limits<C>::infinity();
      position.v[c] = -1;
    }
    const int first_row = p.rows.FirstTap(row), last_row = p.rows.LastTap(row);
    const int first_column = p.columns.FirstTap(column), last_column = p.columns.LastTap(column);
    for (int kh = first_row; kh < last_row; ++kh) {
      const int at = (p.rows.Start(row) + p.rows.Tap(kh)) * p.columns.size;
      for (int kw = first_column; kw < last_column; ++kw) {
        const int pixel = at + p.columns.Start(column) + p.columns.Tap(kw);
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
      }
    }
  }
};

template <class T, int kLength>
__global__ void __launch_bounds__(kThreads)
    ForwardMax(Pooling p, const T* x, T* y, int32_t* position, int64_t threads) {
  for (int64_t i = FirstElement(); i < threads; i += ElementStep()) {
    const auto place = p.LocateWindow(i);
    const Maxima<T, kLength> maxima(p, x + p.ElementPlane(place), place.row, place.column);
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
  const bool with_padding = p.mode == PoolMode::kAverageIncludePad;
  for (int64_t i = FirstElement(); i < threads; i += ElementStep()) {
    const auto place = p.LocateWindow(i);
    const T* plane = x + p.ElementPlane(place);
    double sum[kLength] = {};
    const int last_row = p.rows.LastTap(place.row);
    const int last_column = p.columns.LastTap(place.column);
    for (int kh = p.rows.FirstTap(place.row); kh < last_row; ++kh) {
      const int at = (p.rows.Start(place.row) + p.rows.Tap(kh)) * p.columns.size;
      for (int kw = p.columns.FirstTap(place.column); kw < last_column; ++kw) {
        const int pixel = at + p.columns.Start(place.column) + p.columns.Tap(kw);
        const auto values = LoadVector<T, kLength>(plane + pixel * p.step());
#pragma unroll
        for (int c = 0; c < kLength; ++c)
          sum[c] += static_cast<double>(Cast<ComputeType<T>>(values.v[c]));
      }
    }
    const int divisor =
        p.rows.Counted(place.row, with_padding) * p.columns.Counted(place.column, with_padding);
    Vector<T, kLength> out;
#pragma unroll
    for (int c = 0; c < kLength; ++c)
      out.v[c] = Cast<T>(sum[c] / static_cast<double>(divisor > 1 ? divisor : 1));
    StoreVector(y + i * kLength, out);
  }
}

/// dx[i] = Σ over the windows that see i of their share; `position` of a maximum, else null.
template <class T, int kLength>
__global__ void __launch_bounds__(kThreads)
    Backward(Pooling p, const T* dy, const int32_t* position, T* dx, int64_t threads) {
  using C = ComputeType<T>;
  const bool with_padding = p.mode == PoolMode::kAverageIncludePad;
  for (int64_t i = FirstElement(); i < threads; i += ElementStep()) {
    const auto place = p.LocateElement(i);
    const int64_t plane = p.WindowPlane(place);
    const int own = place.row * p.columns.size + place.column;
    const int last_row = p.rows.LastOver(place.row);
    const int last_column = p.columns.LastOver(place.column);
    C sum[kLength] = {};
    for (int oh = p.rows.FirstOver(place.row); oh < last_row; ++oh) {
      if (!p.rows.Sees(oh, place.row)) continue;
      for (int ow = p.columns.FirstOver(place.column); ow < last_column; ++ow) {
        if (!p.columns.Sees(ow, place.column)) continue;
        const int64_t window = plane + (oh * p.columns.windows + ow) * p.step();
        const auto gradient = LoadVector<T, kLength>(dy + window);
        if (position) {
          const auto chosen = LoadVector<int32_t, kLength>(position + window);
#pragma unroll
          for (int c = 0; c < kLength; ++c)
            if (chosen.v[c] == own) sum[c] += Cast<C>(gradient.v[c]);
        } else {
          const int divisor =
              p.rows.Counted(oh, with_padding) * p.columns.Counted(ow, with_padding);
#pragma unroll
          for (int c = 0; c < kLength; ++c)
            sum[c] += Cast<C>(gradient.v[c]) / static_cast<C>(divisor > 1 ? divisor : 1);
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
/// As x; an average may do without x, but dy lies as its result did.
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

void RegisterPooling() {
  RegisterImageKernels<PoolingForwardSpec, RunForward, ForwardLayouts>();
  RegisterImageKernels<PoolingBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
