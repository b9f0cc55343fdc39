// Convolutions without cuDNN: matrix products that look up elements in the images as im2col would
// arrange them. The batches of the product are groups of channels.

#include "backend/cuda/kernels/common/gemm.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/formula/activation.h"
#include "model/operation/conv/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// The part of a Recorder that kernels need.
struct Geometry {
  int64_t batch, channels, filters;  ///< per group
  int64_t groups;

  /// The numbers of one axis.
  struct Axis {
    int64_t size, out, kernel, stride, pad, dilation;

    explicit Axis(const Recorder::Axis& axis)
        : size(axis.size),
          out(axis.windows),
          kernel(axis.kernel),
          stride(axis.stride),
          pad(axis.before),
          dilation(axis.dilation) {}
    /// The input under a tap of an output; outside of [0, size) it is padding.
    __device__ int64_t Input(int64_t o, int64_t tap) const {
      return o * stride - pad + tap * dilation;
    }
    __device__ bool Has(int64_t i) const { return i >= 0 && i < size; }
    /// The output that has the input under the tap; -1 if none has.
    __device__ int64_t Output(int64_t i, int64_t tap) const {
      const int64_t from = i + pad - tap * dilation;
      return from >= 0 && from % stride == 0 && from / stride < out ? from / stride : -1;
    }
  };
  Axis d, h, w;

  explicit Geometry(const Recorder& r)
      : batch(r.batchsize),
        channels(r.in_channels / r.group),
        filters(r.out_channels / r.group),
        groups(r.group),
        d(r.axes[0]),
        h(r.axes[1]),
        w(r.axes[2]) {}
  __host__ __device__ int64_t pixels() const { return d.size * h.size * w.size; }
  __host__ __device__ int64_t out_pixels() const { return d.out * h.out * w.out; }
  __host__ __device__ int64_t taps() const { return d.kernel * h.kernel * w.kernel; }
  /// Number `n` of an array of planes, rows and columns, without a division where there is one
  /// plane.
  struct Place {
    int64_t d, h, w;
    __device__ Place(int64_t n, int64_t planes, int64_t rows, int64_t columns)
        : d(0), h(n / columns), w(n % columns) {
      if (planes > 1) {
        d = h / rows;
        h %= rows;
      }
    }
  };
  __device__ Place Tap(int64_t n) const { return {n, d.kernel, h.kernel, w.kernel}; }
  __device__ Place Pixel(int64_t n) const { return {n, d.size, h.size, w.size}; }
  __device__ Place OutPixel(int64_t n) const { return {n, d.out, h.out, w.out}; }
};

/// W (filters, channels · taps) of a group.
template <class T>
struct Filters {
  Geometry g;
  const T* w;
  __device__ ComputeType<T> operator()(int64_t group, int64_t filter, int64_t p) const {
    const int64_t length = g.channels * g.taps();
    return Cast<ComputeType<T>>(w[(group * g.filters + filter) * length + p]);
  }
};

/// The transposed filter: (channels, filters · taps).
template <class T>
struct FiltersByChannel {
  Geometry g;
  const T* w;
  __device__ ComputeType<T> operator()(int64_t group, int64_t channel, int64_t p) const {
    const int64_t filter = group * g.filters + p / g.taps();
    return Cast<ComputeType<T>>(w[(filter * g.channels + channel) * g.taps() + p % g.taps()]);
  }
};

/// The inputs under the windows: (channels · taps, batch · output pixels), or its transpose.
template <class T, bool kTransposed>
struct Columns {
  Geometry g;
  const T* x;
  __device__ ComputeType<T> operator()(int64_t group, int64_t p, int64_t q) const {
    if (kTransposed) {
      const int64_t swapped = p;
      p = q;
      q = swapped;
    }
    const int64_t image = q / g.out_pixels(), pixel = q % g.out_pixels();
    const auto o = g.OutPixel(pixel), tap = g.Tap(p % g.taps());
    const int64_t d = g.d.Input(o.d, tap.d), h = g.h.Input(o.h, tap.h), w = g.w.Input(o.w, tap.w);
    if (!g.d.Has(d) || !g.h.Has(h) || !g.w.Has(w)) return 0;
    const int64_t channel = (image * g.groups + group) * g.channels + p / g.taps();
    return Cast<ComputeType<T>>(x[((channel * g.d.size + d) * g.h.size + h) * g.w.size + w]);
  }
};

/// The outputs that depend on a pixel: (filters · taps, batch · input pixels).
template <class T>
struct Outputs {
  Geometry g;
  const T* dy;
  __device__ ComputeType<T> operator()(int64_t group, int64_t p, int64_t q) const {
    const int64_t image = q / g.pixels(), pixel = q % g.pixels();
    const auto i = g.Pixel(pixel), tap = g.Tap(p % g.taps());
    const int64_t d = g.d.Output(i.d, tap.d), h = g.h.Output(i.h, tap.h),
                  w = g.w.Output(i.w, tap.w);
    if (d < 0 || h < 0 || w < 0) return 0;
    const int64_t channel = (image * g.groups + group) * g.filters + p / g.taps();
    return Cast<ComputeType<T>>(dy[((channel * g.d.out + d) * g.h.out + h) * g.w.out + w]);
  }
};

/// dy (filters, batch · output pixels)
template <class T>
struct OutputRows {
  Geometry g;
  const T* dy;
  __device__ ComputeType<T> operator()(int64_t group, int64_t filter, int64_t q) const {
    const int64_t image = q / g.out_pixels(), pixel = q % g.out_pixels();
    const int64_t plane = (image * g.groups + group) * g.filters + filter;
    return Cast<ComputeType<T>>(dy[plane * g.out_pixels() + pixel]);
  }
};

/// Stores (channels of a group, batch · pixels) as images, plus bias and `add`, then the
/// activation.
template <class T>
struct StoreImages {
  using C = ComputeType<T>;
  T* y;
  const T* bias;
  const T* add;
  int64_t groups, channels, pixels;
  Activation after;
  __device__ void operator()(int64_t group, int64_t channel, int64_t q, C value) const {
    const int64_t of_all = group * channels + channel;
    const int64_t at = (q / pixels * groups * channels + of_all) * pixels + q % pixels;
    if (bias) value += Cast<C>(bias[of_all]);
    if (add) value += Cast<C>(add[at]);
    value = formula::Activated(after.kind, value, static_cast<C>(after.low),
                               static_cast<C>(after.high));
    y[at] = Cast<T>(value);
  }
};

template <class T>
struct StoreFilters {
  T* dw;
  int64_t filters, length;
  __device__ void operator()(int64_t group, int64_t filter, int64_t p, ComputeType<T> value) const {
    dw[(group * filters + filter) * length + p] = Cast<T>(value);
  }
};

template <class T>
void Forward(const Geometry& g, const T* x, const T* w, const T* bias, const T* add,
             const Activation& after, T* y, Stream stream) {
  LaunchGemm<ComputeType<T>>(
      g.groups, g.filters, g.batch * g.out_pixels(), g.channels * g.taps(), stream,
      Filters<T>{g, w}, Columns<T, false>{g, x},
      StoreImages<T>{y, bias, add, g.groups, g.filters, g.out_pixels(), after});
}

template <class T>
void BackwardX(const Geometry& g, const T* dy, const T* w, const T* bias, T* dx, Stream stream) {
  LaunchGemm<ComputeType<T>>(
      g.groups, g.channels, g.batch * g.pixels(), g.filters * g.taps(), stream,
      FiltersByChannel<T>{g, w}, Outputs<T>{g, dy},
      StoreImages<T>{dx, bias, nullptr, g.groups, g.channels, g.pixels(), {}});
}

template <class T>
void BackwardW(const Geometry& g, const T* dy, const T* x, T* dw, Stream stream) {
  const int64_t length = g.channels * g.taps();
  LaunchGemm<ComputeType<T>>(g.groups, g.filters, length, g.batch * g.out_pixels(), stream,
                             OutputRows<T>{g, dy}, Columns<T, true>{g, x},
                             StoreFilters<T>{dw, g.filters, length});
}

/// db (channels): the sum of dy (batch, channels, pixels). One block per channel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    BackwardB(const T* dy, int64_t batch, int64_t channels, int64_t pixels, T* db) {
  double sum = 0;
  for (int64_t i = threadIdx.x; i < batch * pixels; i += kThreads) {
    const int64_t image = i / pixels;
    sum += static_cast<double>(
        Cast<ComputeType<T>>(dy[(image * channels + blockIdx.x) * pixels + i - image * pixels]));
  }
  sum = SumBlock(sum);
  if (threadIdx.x == 0) db[blockIdx.x] = Cast<T>(sum);
}

template <class T>
void LaunchBackwardB(const Execution& execution, size_t output, int64_t batch, int64_t channels,
                     int64_t pixels) {
  Launch(BackwardB<T>, static_cast<unsigned>(channels), kThreads, StreamOf(execution.device),
         execution.in<T>(0), batch, channels, pixels, execution.out<T>(output));
}

void RunConv(const ConvSpec& spec, const Execution& e) {
  const Recorder& r = spec.geometry;
  const Geometry g(r);
  const Stream stream = StreamOf(e.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const auto bias_gradient = [&](size_t output) {
      LaunchBackwardB<T>(e, output, r.batchsize, r.out_channels, g.out_pixels());
    };
    switch (spec.pass) {
      case ConvPass::kForward:
        return Forward(g, e.in<T>(0), e.in<T>(1), r.bias ? e.in<T>(2) : nullptr,
                       spec.has_add ? e.in<T>(spec.add_input()) : nullptr, spec.activation,
                       e.out<T>(0), stream);
      case ConvPass::kBackwardX:
        return BackwardX<T>(g, e.in<T>(0), e.in<T>(1), nullptr, e.out<T>(0), stream);
      case ConvPass::kBackwardW:
        BackwardW(g, e.in<T>(0), e.in<T>(1), e.out<T>(0), stream);
        if (r.bias) bias_gradient(1);
        return;
      case ConvPass::kBackwardB:
        return bias_gradient(0);
    }
  });
}

// A transposed convolution is the input gradient of a convolution, and vice versa.
void RunConvTranspose(const ConvTransposeSpec& spec, const Execution& e) {
  const Recorder& r = spec.geometry;
  const Geometry g(r);
  const Stream stream = StreamOf(e.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const auto bias_gradient = [&](size_t output) {
      LaunchBackwardB<T>(e, output, r.batchsize, r.in_channels, g.pixels());
    };
    switch (spec.pass) {
      case ConvPass::kForward:
        return BackwardX(g, e.in<T>(0), e.in<T>(1), r.bias ? e.in<T>(2) : nullptr, e.out<T>(0),
                         stream);
      case ConvPass::kBackwardX:
        return Forward<T>(g, e.in<T>(0), e.in<T>(1), nullptr, nullptr, false, e.out<T>(0), stream);
      case ConvPass::kBackwardW:
        BackwardW(g, e.in<T>(1), e.in<T>(0), e.out<T>(0), stream);
        if (r.bias) bias_gradient(1);
        return;
      case ConvPass::kBackwardB:
        return bias_gradient(0);
    }
  });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<ConvSpec, RunConv>();
  RegisterKernels<ConvTransposeSpec, RunConvTranspose>();
}

}  // namespace singa::cuda
