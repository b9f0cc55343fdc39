// Convolutions where there is no cuDNN: matrix products whose elements are looked up in the images
// as im2col would have laid them out. Batches of the product are groups of channels.

#include "backend/cudnn/kernels/gemm.h"
#include "backend/cudnn/kernels/join.h"
#include "backend/cudnn/kernels/register.h"
#include "model/operation/conv_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// Recorder, as far as kernels need it.
struct Geometry {
  int64_t batch, channels, filters;  ///< of one group
  int64_t groups;
  int64_t height, width, out_height, out_width;
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;

  explicit Geometry(const Recorder& r)
      : batch(r.batchsize),
        channels(r.in_channels / r.group),
        filters(r.out_channels / r.group),
        groups(r.group),
        height(r.height),
        width(r.width),
        out_height(r.conv_height),
        out_width(r.conv_width),
        kernel_h(r.kernel_h),
        kernel_w(r.kernel_w),
        stride_h(r.stride_h),
        stride_w(r.stride_w),
        pad_top(r.pad_top),
        pad_left(r.pad_left),
        dilation_h(r.dilation_h),
        dilation_w(r.dilation_w) {}
  __host__ __device__ int64_t pixels() const { return height * width; }
  __host__ __device__ int64_t out_pixels() const { return out_height * out_width; }
  __host__ __device__ int64_t taps() const { return kernel_h * kernel_w; }
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

/// The same with rows for channels: (channels, filters · taps).
template <class T>
struct FiltersByChannel {
  Geometry g;
  const T* w;
  __device__ ComputeType<T> operator()(int64_t group, int64_t channel, int64_t p) const {
    const int64_t filter = group * g.filters + p / g.taps();
    return Cast<ComputeType<T>>(w[(filter * g.channels + channel) * g.taps() + p % g.taps()]);
  }
};

/// What the windows see: (channels · taps, batch · output pixels), or transposed.
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
    const int64_t channel = p / g.taps(), tap = p % g.taps();
    const int64_t h =
        pixel / g.out_width * g.stride_h - g.pad_top + tap / g.kernel_w * g.dilation_h;
    const int64_t w =
        pixel % g.out_width * g.stride_w - g.pad_left + tap % g.kernel_w * g.dilation_w;
    if (h < 0 || h >= g.height || w < 0 || w >= g.width) return 0;
    const int64_t plane = (image * g.groups + group) * g.channels + channel;
    return Cast<ComputeType<T>>(x[(plane * g.height + h) * g.width + w]);
  }
};

/// The outputs that a pixel went into: (filters · taps, batch · input pixels).
template <class T>
struct Outputs {
  Geometry g;
  const T* dy;
  __device__ ComputeType<T> operator()(int64_t group, int64_t p, int64_t q) const {
    const int64_t image = q / g.pixels(), pixel = q % g.pixels();
    const int64_t filter = p / g.taps(), tap = p % g.taps();
    const int64_t h = pixel / g.width + g.pad_top - tap / g.kernel_w * g.dilation_h;
    const int64_t w = pixel % g.width + g.pad_left - tap % g.kernel_w * g.dilation_w;
    if (h < 0 || w < 0 || h % g.stride_h != 0 || w % g.stride_w != 0) return 0;
    const int64_t row = h / g.stride_h, column = w / g.stride_w;
    if (row >= g.out_height || column >= g.out_width) return 0;
    const int64_t plane = (image * g.groups + group) * g.filters + filter;
    return Cast<ComputeType<T>>(dy[(plane * g.out_height + row) * g.out_width + column]);
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

/// Stores (channels of a group, batch · pixels) as images; + bias + add, and ReLU.
template <class T>
struct StoreImages {
  using C = ComputeType<T>;
  T* y;
  const T* bias;
  const T* add;
  int64_t groups, channels, pixels;
  bool relu;
  __device__ void operator()(int64_t group, int64_t channel, int64_t q, C value) const {
    const int64_t of_all = group * channels + channel;
    const int64_t at = (q / pixels * groups * channels + of_all) * pixels + q % pixels;
    if (bias) value += Cast<C>(bias[of_all]);
    if (add) value += Cast<C>(add[at]);
    if (relu && value <= C(0)) value = 0;
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
void Forward(const Geometry& g, const T* x, const T* w, const T* bias, const T* add, bool relu,
             T* y, Stream stream) {
  LaunchGemm<ComputeType<T>>(
      g.groups, g.filters, g.batch * g.out_pixels(), g.channels * g.taps(), stream,
      Filters<T>{g, w}, Columns<T, false>{g, x},
      StoreImages<T>{y, bias, add, g.groups, g.filters, g.out_pixels(), relu});
}

template <class T>
void BackwardX(const Geometry& g, const T* dy, const T* w, const T* bias, T* dx, Stream stream) {
  LaunchGemm<ComputeType<T>>(
      g.groups, g.channels, g.batch * g.pixels(), g.filters * g.taps(), stream,
      FiltersByChannel<T>{g, w}, Outputs<T>{g, dy},
      StoreImages<T>{dx, bias, nullptr, g.groups, g.channels, g.pixels(), false});
}

template <class T>
void BackwardW(const Geometry& g, const T* dy, const T* x, T* dw, Stream stream) {
  const int64_t length = g.channels * g.taps();
  LaunchGemm<ComputeType<T>>(g.groups, g.filters, length, g.batch * g.out_pixels(), stream,
                             OutputRows<T>{g, dy}, Columns<T, true>{g, x},
                             StoreFilters<T>{dw, g.filters, length});
}

/// db (channels): the sum of dy (batch, channels, pixels), a block for each.
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
                       spec.has_add ? e.in<T>(spec.add_input()) : nullptr, spec.relu, e.out<T>(0),
                       stream);
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

// A transposed convolution is the input gradient of a convolution, and the other way round.
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

void RegisterConv() {
  RegisterKernels<ConvSpec, RunConv>();
  RegisterKernels<ConvTransposeSpec, RunConvTranspose>();
}

}  // namespace singa::cuda
