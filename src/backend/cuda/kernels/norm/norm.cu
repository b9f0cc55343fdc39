// Layer, group, instance and RMS norm. Where the values of a statistic lie side by side, the
// threads of a block share them; with a statistic for each position, neighbouring threads have
// neighbouring positions. Sums are doubles and have one order.
//
// The gradients of scale and bias are sums over samples and positions. Where each sample is a row
// of channels, a block takes 32 channels of a part of the rows, and a second kernel adds the parts.

#include <algorithm>
#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/join.h"
#include "backend/cuda/kernels/common/register.h"
#include "model/operation/norm/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

/// The sizes of a NormGeometry, for kernels.
struct Sizes {
  explicit Sizes(const NormGeometry& g)
      : groups(g.groups),
        channels(g.group_channels()),
        positions(g.positions()),
        statistics(g.statistics()),
        values(std::max<int64_t>(g.values(), 1)),
        per_position(g.per_position),
        centered(g.centered) {}
  /// Whether the values of a statistic lie side by side.
  bool are_rows() const { return !per_position || positions == 1; }

  int64_t groups, channels, positions, statistics;
  int64_t values;  ///< 1 where there are none
  bool per_position, centered;
};

/// The values of one statistic that this thread has, and how it joins sums with the other threads.
struct SharedRow {
  __device__ explicit SharedRow(const Sizes& s)
      : statistic(blockIdx.x),
        base(statistic * s.values),
        first(threadIdx.x),
        end(s.channels > 0 && s.positions > 0 ? s.values : 0),
        step(blockDim.x),
        positions(s.per_position ? 1 : s.positions),
        first_channel(statistic % s.groups * s.channels) {}
  __device__ int64_t At(int64_t i) const { return base + i; }
  __device__ int64_t Channel(int64_t i) const { return first_channel + i / positions; }
  __device__ double Sum(double value) const { return SumBlock(value); }
  __device__ bool stores() const { return threadIdx.x == 0; }

  int64_t statistic, base, first, end, step, positions, first_channel;
};
struct OwnColumn {
  __device__ explicit OwnColumn(const Sizes& s)
      : statistic(FirstElement()), step(1), positions(s.positions) {
    const int64_t group = statistic / positions;
    base = group * s.channels * positions + statistic % positions;
    first_channel = group % s.groups * s.channels;
    stores_ = statistic < s.statistics;
    end = stores_ ? s.channels : 0;
  }
  __device__ int64_t At(int64_t i) const { return base + i * positions; }
  __device__ int64_t Channel(int64_t i) const { return first_channel + i; }
  __device__ double Sum(double value) const { return value; }
  __device__ bool stores() const { return stores_; }

  int64_t statistic, first = 0, end, step, positions, base, first_channel;
  bool stores_;
};

template <class C>
__device__ C ValueOr(const C* values, int64_t i, C otherwise) {
  return values ? values[i] : otherwise;
}

template <class T, class Values>
__global__ void __launch_bounds__(kThreads)
    Forward(const T* x, const ComputeType<T>* scale, const ComputeType<T>* bias, T* y,
            ComputeType<T>* means, ComputeType<T>* inv_stds, Sizes sizes, double epsilon) {
  using C = ComputeType<T>;
  const Values v(sizes);
  const auto count = static_cast<double>(sizes.values);
  double mean = 0, squares = 0;
  if (sizes.centered) {
    for (int64_t i = v.first; i < v.end; i += v.step)
      mean += static_cast<double>(Cast<C>(x[v.At(i)]));
    mean = v.Sum(mean) / count;
  }
  for (int64_t i = v.first; i < v.end; i += v.step) {
    const double d = static_cast<double>(Cast<C>(x[v.At(i)])) - mean;
    squares += d * d;
  }
  const C inv_std = static_cast<C>(1 / std::sqrt(v.Sum(squares) / count + epsilon));
  if (v.stores()) {
    if (means) means[v.statistic] = static_cast<C>(mean);
    inv_stds[v.statistic] = inv_std;
  }
  const C shift = static_cast<C>(mean);
  for (int64_t i = v.first; i < v.end; i += v.step) {
    const int64_t c = v.Channel(i);
    y[v.At(i)] = Cast<T>((Cast<C>(x[v.At(i)]) - shift) * inv_std * ValueOr(scale, c, C(1)) +
                         ValueOr(bias, c, C(0)));
  }
}

/// dx = inv_std · (g − mean(g) − x̂ · mean(g · x̂)), g = dy · scale
template <class T, class Values>
__global__ void __launch_bounds__(kThreads)
    Gradient(const T* dy, const T* x, const ComputeType<T>* scale, const ComputeType<T>* means,
             const ComputeType<T>* inv_stds, T* dx, Sizes sizes) {
  using C = ComputeType<T>;
  const Values v(sizes);
  const auto count = static_cast<double>(sizes.values);
  const int64_t s = v.end > 0 ? v.statistic : 0;  // threads beyond the last one have no values
  const C mean = ValueOr(means, s, C(0)), inv_std = inv_stds[s];
  double sum = 0, product = 0;
  for (int64_t i = v.first; i < v.end; i += v.step) {
    const C g = Cast<C>(dy[v.At(i)]) * ValueOr(scale, v.Channel(i), C(1));
    sum += static_cast<double>(g);
    product += static_cast<double>(g) * static_cast<double>((Cast<C>(x[v.At(i)]) - mean) * inv_std);
  }
  sum = v.Sum(sum) / count;
  product = v.Sum(product) / count;
  const C a = sizes.centered ? static_cast<C>(sum) : C(0), b = static_cast<C>(product);
  for (int64_t i = v.first; i < v.end; i += v.step) {
    const C g = Cast<C>(dy[v.At(i)]) * ValueOr(scale, v.Channel(i), C(1));
    dx[v.At(i)] = Cast<T>(inv_std * (g - a - (Cast<C>(x[v.At(i)]) - mean) * inv_std * b));
  }
}

/// A block for each channel: sums over samples and positions.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ChannelSums(const T* dy, const T* x, const ComputeType<T>* means,
                const ComputeType<T>* inv_stds, ComputeType<T>* dscale, ComputeType<T>* dbias,
                Sizes sizes, int64_t samples) {
  using C = ComputeType<T>;
  const int64_t channel = blockIdx.x, all = sizes.groups * sizes.channels;
  double product = 0, sum = 0;
  for (int64_t i = threadIdx.x; i < samples * sizes.positions; i += blockDim.x) {
    const int64_t n = i / sizes.positions, position = i % sizes.positions;
    const int64_t at = (n * all + channel) * sizes.positions + position;
    const int64_t group = n * sizes.groups + channel / sizes.channels;
    const int64_t s = sizes.per_position ? group * sizes.positions + position : group;
    const auto g = static_cast<double>(Cast<C>(dy[at]));
    sum += g;
    product += g * static_cast<double>((Cast<C>(x[at]) - ValueOr(means, s, C(0))) * inv_stds[s]);
  }
  product = SumBlock(product);
  sum = SumBlock(sum);
  if (threadIdx.x != 0) return;
  if (dscale) dscale[channel] = static_cast<C>(product);
  if (dbias) dbias[channel] = static_cast<C>(sum);
}

/// Of rows of channels: two sums for each part and channel, [part][channel][2].
template <class T>
__global__ void __launch_bounds__(kThreads)
    RowSums(const T* dy, const T* x, const ComputeType<T>* means, const ComputeType<T>* inv_stds,
            double* partial, Sizes sizes, int64_t rows) {
  using C = ComputeType<T>;
  constexpr int kRows = kThreads / kWarpThreads;
  const int64_t all = sizes.groups * sizes.channels, part = blockIdx.y, parts = gridDim.y;
  const int64_t lane = threadIdx.x % kWarpThreads, first = int64_t{blockIdx.x} * kWarpThreads;
  const int64_t channel = first + lane;
  double product[1] = {0}, sum[1] = {0};
  if (channel < all) {
    for (int64_t row = part * rows / parts + threadIdx.x / kWarpThreads;
         row < (part + 1) * rows / parts; row += kRows) {
      const int64_t s = row * sizes.groups + channel / sizes.channels;
      const auto g = static_cast<double>(Cast<C>(dy[row * all + channel]));
      sum[0] += g;
      product[0] +=
          g * static_cast<double>((Cast<C>(x[row * all + channel]) - ValueOr(means, s, C(0))) *
                                  inv_stds[s]);
    }
  }
  const double products = JoinColumns<kThreads>(product, kWarpThreads, 0.0, Plus());
  const double sums = JoinColumns<kThreads>(sum, kWarpThreads, 0.0, Plus());
  if (threadIdx.x < kWarpThreads && channel < all) {
    partial[(part * all + channel) * 2] = products;
    partial[(part * all + channel) * 2 + 1] = sums;
  }
}

template <class C>
__global__ void __launch_bounds__(kThreads)
    AddParts(const double* partial, int64_t parts, int64_t channels, C* dscale, C* dbias) {
  const int64_t channel = FirstElement();
  if (channel >= channels) return;
  double product = 0, sum = 0;
  for (int64_t part = 0; part < parts; ++part) {
    product += partial[(part * channels + channel) * 2];
    sum += partial[(part * channels + channel) * 2 + 1];
  }
  if (dscale) dscale[channel] = static_cast<C>(product);
  if (dbias) dbias[channel] = static_cast<C>(sum);
}

unsigned RowThreads(const Sizes& sizes) { return sizes.values > 512 ? kThreads : kWarpThreads; }

void RunForward(const NormForwardSpec& spec, const Execution& execution) {
  const Sizes sizes(spec);
  if (sizes.statistics == 0) return;
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const auto launch = [&](auto kernel, dim3 grid, unsigned threads) {
      Launch(kernel, grid, threads, stream, execution.in<T>(0), execution.in_or_null<C>(1),
             execution.in_or_null<C>(2), execution.out<T>(0), execution.out_or_null<C>(1),
             execution.out<C>(2), sizes, spec.epsilon);
    };
    if (sizes.are_rows()) {
      launch(Forward<T, SharedRow>, dim3(static_cast<unsigned>(sizes.statistics)),
             RowThreads(sizes));
    } else {
      launch(Forward<T, OwnColumn>, GridFor(sizes.statistics, kThreads), kThreads);
    }
  });
}

/// Into which the rows of RowSums are cut.
int64_t PartsOf(const NormBackwardSpec& spec) {
  return std::clamp<int64_t>(spec.shape[0] / 256, 1, 64);
}

void RunBackward(const NormBackwardSpec& spec, const Execution& execution) {
  const Sizes sizes(spec);
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    using C = ComputeType<T>;
    const T *dy = execution.in<T>(0), *x = execution.in<T>(1);
    const C *mean = execution.in_or_null<C>(3), *inv_std = execution.in<C>(4);
    if (spec.need_x && spec.shape.Count() > 0) {
      const auto launch = [&](auto kernel, dim3 grid, unsigned threads) {
        Launch(kernel, grid, threads, stream, dy, x, execution.in_or_null<C>(2), mean, inv_std,
               execution.out<T>(0), sizes);
      };
      if (sizes.are_rows()) {
        launch(Gradient<T, SharedRow>, dim3(static_cast<unsigned>(sizes.statistics)),
               RowThreads(sizes));
      } else {
        launch(Gradient<T, OwnColumn>, GridFor(sizes.statistics, kThreads), kThreads);
      }
    }
    const int64_t channels = spec.channels();
    if (channels == 0 || (!spec.need_scale && !spec.need_bias)) return;
    C *dscale = execution.out_or_null<C>(1), *dbias = execution.out_or_null<C>(2);
    if (sizes.positions != 1) {
      Launch(ChannelSums<T>, static_cast<unsigned>(channels), kThreads, stream, dy, x, mean,
             inv_std, dscale, dbias, sizes, spec.shape[0]);
      return;
    }
    const int64_t parts = PartsOf(spec);
    const auto width = static_cast<unsigned>((channels + kWarpThreads - 1) / kWarpThreads);
    auto* partial = static_cast<double*>(execution.workspace);
    Launch(RowSums<T>, dim3(width, static_cast<unsigned>(parts)), kThreads, stream, dy, x, mean,
           inv_std, partial, sizes, spec.shape[0]);
    LaunchIndependent(AddParts<C>, GridFor(channels, kThreads), kThreads, stream, partial, parts,
                      channels, dscale, dbias);
  });
}

size_t BackwardWorkspace(const NormBackwardSpec& spec) {
  const bool by_rows = spec.positions() == 1 && (spec.need_scale || spec.need_bias);
  return by_rows ? static_cast<size_t>(PartsOf(spec) * spec.channels() * 2) * sizeof(double) : 0;
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<NormForwardSpec, RunForward>();
  RegisterKernels<NormBackwardSpec, RunBackward, BackwardWorkspace>();
}

}  // namespace singa::cuda
