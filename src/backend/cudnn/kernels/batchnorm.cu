// Batch normalisation (Ioffe and Szegedy 2015), with what may follow: an addition and ReLU.
//
// The values of a channel are cut into parts, one block each, whose statistics are taken in one
// pass: sums of the distances from the first value and of their squares. A second kernel merges the
// parts by the rule of Chan, Golub and LeVeque (1979), so data with a mean far from zero keeps its
// variance. Sums are doubles and have one order.
//
// y follows from the statistics as BatchNormAffine says, to the bit: these files are compiled
// without contraction to fused multiply-adds.

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "backend/cudnn/kernels/element.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/image_plan.h"
#include "backend/cudnn/kernels/join.h"
#include "backend/cudnn/kernels/running_statistics.h"
#include "model/operation/batchnorm_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 32;  // channels of a block where neighbours in memory are channels
constexpr int kRows = kThreads / kColumns;
constexpr int64_t kBlocks = 1024;    // enough for any GPU of today
constexpr int64_t kLeastPart = 512;  // values of a channel in one part

/// Where the values of a channel lie. The channel of element i is i / spatial mod channels;
/// channels-last and (N, C) are the same with a spatial size of 1.
struct Channels {
  template <class Spec>
  explicit Channels(const Spec& spec)
      : count(spec.shape[1]),
        spatial(spec.x_layout ? 1 : spec.shape.Count(2, spec.shape.rank())),
        values(spec.shape[0] * spec.shape.Count(2, spec.shape.rank())),
        parts(std::clamp<int64_t>(kBlocks / std::max<int64_t>(blocks(), 1), 1,
                                  std::max<int64_t>(values / kLeastPart, 1))),
        divisor(std::max<int64_t>(spatial, 1)) {
    Check(FitsIndex32(values), "BatchNorm", "a channel has ", values, " values, more than 2^31");
  }
  bool by_columns() const { return spatial == 1; }
  /// Blocks that go through all channels along x, of which a grid has room for 2^31 − 1, and
  /// through all parts along y.
  dim3 grid() const { return dim3(static_cast<unsigned>(blocks()), static_cast<unsigned>(parts)); }
  int64_t blocks() const { return by_columns() ? (count + kColumns - 1) / kColumns : count; }
  /// Of a block: a warp where there are blocks enough, each with little to do.
  int threads() const {
    return !by_columns() && count >= kBlocks && values <= kThreads ? kWarpThreads : kThreads;
  }
  int64_t count, spatial, values, parts;
  Divisor divisor;
};

/// The values of one channel and part that this thread has.
template <bool kByColumns>
struct Part {
  __device__ explicit Part(const Channels& channels) : channels(channels) {
    begin = blockIdx.y * channels.values / channels.parts;
    end = (blockIdx.y + 1) * channels.values / channels.parts;
    count = end - begin;
    start = begin;
    if (kByColumns) {
      channel = static_cast<int64_t>(blockIdx.x) * kColumns + threadIdx.x % kColumns;
      first = threadIdx.x / kColumns == 0;
      begin += threadIdx.x / kColumns;
    } else {
      channel = blockIdx.x;
      first = threadIdx.x == 0;
      begin += threadIdx.x;
    }
    exists = channel < channels.count;
    if (!exists) begin = end;
  }
  /// Where value j of the channel lies.
  __device__ int64_t At(int64_t j) const {
    if constexpr (kByColumns) {
      return j * channels.count + channel;
    } else {
      const uint32_t image = channels.divisor.Divide(static_cast<uint32_t>(j));
      return (image * channels.count + channel) * channels.spatial + (j - image * channels.spatial);
    }
  }
  /// Calls f(where it lies) for each.
  template <class F>
  __device__ void ForEach(const F& f) const {
    const int64_t step = kByColumns ? kRows : blockDim.x;
#pragma unroll 4
    for (int64_t j = begin; j < end; j += step) f(At(j));
  }
  /// The sum over all threads that have values of the channel.
  __device__ double Sum(double value) const {
    if constexpr (kByColumns) {
      SINGA_SHARED(double, kThreads, of_thread);
      __syncthreads();
      of_thread[threadIdx.x] = value;
      __syncthreads();
      double sum = 0;
      for (int row = 0; row < kRows; ++row)
        sum += of_thread[row * kColumns + threadIdx.x % kColumns];
      return sum;
    } else {
      return SumBlock(value);
    }
  }

  const Channels& channels;
  int64_t channel, begin, end, count;
  int64_t start;  ///< the first value of the part, whose ever it is
  bool exists;
  bool first;  ///< the thread that writes what all have computed
};

/// Two sums per part and channel: [part][channel][2].
template <bool kByColumns>
__device__ __forceinline__ void StorePair(double* partial, const Channels& channels,
                                          const Part<kByColumns>& part, double a, double b) {
  if (!part.first || !part.exists) return;
  double* pair = partial + (int64_t{blockIdx.y} * channels.count + part.channel) * 2;
  pair[0] = a;
  pair[1] = b;
}

template <class T, bool kByColumns>
__global__ void __launch_bounds__(kThreads)
    PartStatistics(const T* x, Channels channels, double* partial) {
  using S = ComputeType<T>;
  const Part<kByColumns> part(channels);
  double sum = 0, squares = 0;
  double origin = part.exists ? static_cast<double>(Cast<S>(x[part.At(part.start)])) : 0;
  if (!(std::fabs(origin) <= std::numeric_limits<double>::max())) origin = 0;
  part.ForEach([&](int64_t i) {
    const double d = static_cast<double>(Cast<S>(x[i])) - origin;
    sum += d;
    squares += d * d;
  });
  const auto count = static_cast<double>(part.count);
  sum = part.Sum(sum);
  squares = part.Sum(squares) - sum * (sum / count);
  StorePair(partial, channels, part, origin + sum / count, squares < 0 ? 0.0 : squares);
}

/// mean, factor and bias of each channel, one array after the other.
template <class S>
struct Affine {
  struct One {
    S mean, factor, bias;
    __device__ S operator()(S x) const { return BatchNormValue(x, mean, factor, bias); }
  };
  __device__ One Of(int64_t c) const {
    return {of_channel[c], of_channel[channels + c], of_channel[2 * channels + c]};
  }

  const S* of_channel;
  int64_t channels;
};

template <class S>
__device__ void WriteAffine(S* affine, int64_t channels, int64_t c, S mean, S var, const S* scale,
                            const S* bias, double epsilon) {
  affine[c] = mean;
  affine[channels + c] = BatchNormFactor(scale ? scale[c] : S(1), var, epsilon);
  affine[2 * channels + c] = bias ? bias[c] : S(0);
}

/// Of some values: how many, their mean, and the sum of the squares of their distances from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;
  __device__ static Moments Merge(const Moments& a, const Moments& b) {
    const double total = a.count + b.count;
    if (total == 0) return a;
    const double delta = b.mean - a.mean;
    return {total, a.mean + delta * (b.count / total),
            a.squares + b.squares + delta * delta * (a.count * b.count / total)};
  }
};

/// A warp for each channel.
template <class S>
__global__ void __launch_bounds__(kThreads)
    MergeStatistics(const double* partial, Channels channels, double momentum, const S* scale,
                    const S* bias, double epsilon, S* mean_out, S* var_out, S* running_mean,
                    S* running_var, S* affine) {
  const int64_t c = FirstElement() / kWarpThreads;
  if (c >= channels.count) return;  // the whole warp
  const int lane = threadIdx.x % kWarpThreads;
  Moments all;
  for (int64_t p = lane; p < channels.parts && channels.values > 0; p += kWarpThreads) {
    const auto count = static_cast<double>((p + 1) * channels.values / channels.parts -
                                           p * channels.values / channels.parts);
    const double* pair = partial + (p * channels.count + c) * 2;
    all = Moments::Merge(all, {count, pair[0], pair[1]});
  }
#pragma unroll
  for (int bits = 1; bits < kWarpThreads; bits *= 2) {
    const Moments other = {__shfl_xor_sync(kAllLanes, all.count, bits),
                           __shfl_xor_sync(kAllLanes, all.mean, bits),
                           __shfl_xor_sync(kAllLanes, all.squares, bits)};
    all = lane & bits ? Moments::Merge(other, all) : Moments::Merge(all, other);
  }
  if (lane > 0) return;
  const double count = all.count;
  const S batch_mean = static_cast<S>(all.mean);
  const S batch_var = static_cast<S>(count > 0 ? all.squares / count : 0);
  mean_out[c] = batch_mean;
  var_out[c] = batch_var;
  UpdateRunning(c, count, momentum, batch_mean, batch_var, running_mean, running_var);
  WriteAffine(affine, channels.count, c, batch_mean, batch_var, scale, bias, epsilon);
}

template <class S>
__global__ void __launch_bounds__(kThreads)
    GivenStatistics(int64_t channels, const S* mean, const S* var, const S* scale, const S* bias,
                    double epsilon, S* affine) {
  const int64_t c = FirstElement();
  if (c < channels) WriteAffine(affine, channels, c, mean[c], var[c], scale, bias, epsilon);
}

/// The channels of consecutive elements, from element i on.
template <class Index>
struct ChannelWalk {
  __device__ ChannelWalk(Index i, const DivisorOf<Index>& spatial, const DivisorOf<Index>& count)
      : spatial(spatial.value()), count(count.value()) {
    const Index plane = spatial.Divide(i);
    inside = i - plane * this->spatial;
    channel = plane - count.Divide(plane) * this->count;
  }
  __device__ void Next() {
    if (++inside < spatial) return;
    inside = 0;
    if (++channel == count) channel = 0;
  }
  Index spatial, count, inside, channel;
};

/// y = bn(x), + add where that is not null, and then ReLU. kSame: a thread always comes to the same
/// channels, and looks up what belongs to them once.
template <class T, int kLength, class Index, bool kSame>
__global__ void __launch_bounds__(kThreads)
    Normalize(const T* x, const T* add, T* y, int64_t size, DivisorOf<Index> spatial,
              DivisorOf<Index> count, Affine<ComputeType<T>> affine, bool relu) {
  using S = ComputeType<T>;
  using V = Vector<T, kLength>;
  typename Affine<S>::One of[kLength];
  const auto look_up = [&](int64_t at) {
    ChannelWalk<Index> walk(static_cast<Index>(at), spatial, count);
#pragma unroll
    for (int j = 0; j < kLength; ++j, walk.Next()) of[j] = affine.Of(walk.channel);
  };
  if (kSame) look_up(FirstElement() * kLength);
  for (int64_t at = FirstElement() * kLength; at < size; at += ElementStep() * kLength) {
    if (!kSame) look_up(at);
    const V in = *reinterpret_cast<const V*>(x + at);
    V added = {};
    if (add) added = *reinterpret_cast<const V*>(add + at);
    V out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      S v = of[j](Cast<S>(in.v[j]));
      if (add) v += Cast<S>(added.v[j]);
      out.v[j] = Cast<T>(relu && v <= 0 ? S(0) : v);
    }
    *reinterpret_cast<V*>(y + at) = out;
  }
}

template <class T>
const T* InputOrNull(const Execution& execution, size_t i) {
  return execution.inputs[i].empty() ? nullptr : execution.in<T>(i);
}
template <class T>
T* OutputOrNull(const Execution& execution, size_t i) {
  return execution.outputs[i].empty() ? nullptr : execution.out<T>(i);
}

/// How a kernel goes through all elements.
template <int kLength, class Index, bool kSame>
struct Access {};

/// Calls launch(access, grid) as sizes and addresses allow.
template <class T, class F>
void WithAccess(const Channels& channels, std::initializer_list<const void*> arrays,
                const F& launch) {
  constexpr int kLength = kVectorLength<T>;
  constexpr int64_t kMostBlocks = 2048;
  const int64_t size = channels.count * channels.values;
  bool vectors = size % kLength == 0;
  for (const void* p : arrays) vectors = vectors && IsAligned(p);
  // The vectors of all blocks together are those of whole pixels.
  const int64_t of_pixel = std::max<int64_t>(channels.count / kLength, 1);
  const int64_t unit = of_pixel / std::gcd(of_pixel, int64_t{kThreads});
  const int64_t wanted = std::min((size / kLength + kThreads - 1) / kThreads, kMostBlocks);
  const int64_t blocks = (wanted + unit - 1) / unit * unit;
  if (vectors && channels.by_columns() && channels.count % kLength == 0 &&
      FitsIndex32(blocks * kThreads * kLength)) {
    launch(Access<kLength, uint32_t, true>(), dim3(static_cast<unsigned>(blocks)));
  } else if (!FitsIndex32(size)) {
    launch(Access<1, int64_t, false>(), GridFor(size, kThreads));
  } else if (vectors) {
    launch(Access<kLength, uint32_t, false>(), GridFor(size, kThreads, kLength));
  } else {
    launch(Access<1, uint32_t, false>(), GridFor(size, kThreads));
  }
}

template <class Spec>
size_t PartialBytes(const Spec& spec) {
  const Channels channels(spec);
  return static_cast<size_t>(channels.parts * channels.count) * 2 * sizeof(double);
}

template <class T>
void Forward(const BatchNormForwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Stream stream = StreamOf(execution.device);
  const Channels channels(spec);
  if (channels.count == 0) return;
  auto* partial = static_cast<double*>(execution.workspace);
  auto* affine = reinterpret_cast<S*>(partial + channels.parts * channels.count * 2);
  const T* x = execution.in<T>(0);
  const S* scale = InputOrNull<S>(execution, 1);
  const S* bias = InputOrNull<S>(execution, 2);
  const dim3 each = GridFor(channels.count, kThreads);
  const dim3 warps = GridFor(channels.count, kThreads / kWarpThreads);
  if (spec.training) {
    if (channels.values > 0) {
      const auto kernel =
          channels.by_columns() ? PartStatistics<T, true> : PartStatistics<T, false>;
      Launch(kernel, channels.grid(), channels.threads(), stream, x, channels, partial);
    }
    Launch(MergeStatistics<S>, warps, kThreads, stream, partial, channels, execution.scalars.v[0],
           scale, bias, spec.epsilon, execution.out<S>(1), execution.out<S>(2),
           OutputOrNull<S>(execution, 3), OutputOrNull<S>(execution, 4), affine);
  } else {
    LaunchIndependent(GivenStatistics<S>, each, kThreads, stream, channels.count,
                      execution.in<S>(3), execution.in<S>(4), scale, bias, spec.epsilon, affine);
  }
  const int64_t size = channels.count * channels.values;
  if (size == 0) return;
  const T* add = InputOrNull<T>(execution, 5);
  T* y = execution.out<T>(0);
  WithAccess<T>(
      channels, {x, add, y},
      [&]<int kLength, class Index, bool kSame>(Access<kLength, Index, kSame>, dim3 grid) {
        LaunchIndependent(Normalize<T, kLength, Index, kSame>, grid, kThreads, stream, x, add, y,
                          size, DivisorOf<Index>(channels.spatial),
                          DivisorOf<Index>(channels.count), Affine<S>{affine, channels.count},
                          spec.relu);
      });
}

// ---- backward. With x̂ = (x − mean) / std, s = scale / std and means over the values of one
// channel:
//   dscale = Σ dy · x̂,  dbias = Σ dy
//   dx = s · (dy − mean(dy) − x̂ · mean(dy · x̂)), or s · dy when mean and var are constants.

/// dy, cut off where ReLU was: where y, or bn(x) if y is null, is not positive.
template <class T>
struct Gradient {
  using S = ComputeType<T>;
  const T* dy;
  const T* x;
  const T* y;
  Affine<S> affine;
  bool relu;
  __device__ bool reads_y() const { return relu && y; }
  /// `of`: the affine map of the channel, where it is read.
  __device__ S operator()(S gradient, S x_value, S y_value,
                          const typename Affine<S>::One& of) const {
    if (!relu) return gradient;
    const S sign = y ? y_value : of(x_value);
    return sign <= 0 ? S(0) : gradient;
  }
};

/// Σ dy and Σ dy · (x − mean) of each part; the gradient of what was added on the way.
template <class T, bool kByColumns>
__global__ void __launch_bounds__(kThreads)
    PartGradients(Gradient<T> gradient, Channels channels, T* dadd, double* partial) {
  using S = ComputeType<T>;
  const Part<kByColumns> part(channels);
  double sum = 0, products = 0;
  const auto of = gradient.affine.Of(part.exists ? part.channel : 0);
  const auto mean = static_cast<double>(of.mean);
  part.ForEach([&](int64_t i) {
    const S x = Cast<S>(gradient.x[i]);
    const S y = gradient.reads_y() ? Cast<S>(gradient.y[i]) : S(0);
    const S dy = gradient(Cast<S>(gradient.dy[i]), x, y, of);
    if (dadd) dadd[i] = Cast<T>(dy);
    sum += static_cast<double>(dy);
    products += static_cast<double>(dy) * (static_cast<double>(x) - mean);
  });
  sum = part.Sum(sum);
  StorePair(partial, channels, part, sum, part.Sum(products));
}

/// The three factors of dx = a · dy − b − c · (x − mean) of each channel, one array after the
/// other.
template <class S>
struct Factors {
  struct One {
    S a, b, c;
  };
  __device__ One Of(int64_t channel) const {
    return {of_channel[channel], of_channel[channels + channel],
            of_channel[2 * channels + channel]};
  }

  S* of_channel;
  int64_t channels;
};

/// dscale, dbias, and the factors of dx; a warp for each channel.
template <class S>
__global__ void __launch_bounds__(kThreads)
    MergeGradients(const double* partial, Channels channels, bool training, const S* scale,
                   const S* var, double epsilon, S* dscale, S* dbias, S* factors) {
  const int64_t c = FirstElement() / kWarpThreads;
  if (c >= channels.count) return;  // the whole warp
  const int lane = threadIdx.x % kWarpThreads;
  double sum = 0, products = 0;
  for (int64_t p = lane; partial && p < channels.parts; p += kWarpThreads) {
    sum += partial[(p * channels.count + c) * 2];
    products += partial[(p * channels.count + c) * 2 + 1];
  }
  sum = JoinWarp(sum, Plus());
  products = JoinWarp(products, Plus());
  if (lane > 0) return;
  const double inv_std = 1 / std::sqrt(static_cast<double>(var[c]) + epsilon);
  products *= inv_std;
  if (dscale) {
    dscale[c] = static_cast<S>(products);
    dbias[c] = static_cast<S>(sum);
  }
  const auto n = static_cast<double>(channels.values);
  const double s = static_cast<double>(scale ? scale[c] : S(1)) * inv_std;
  factors[c] = static_cast<S>(s);
  factors[channels.count + c] = training ? static_cast<S>(s * sum / n) : S(0);
  factors[2 * channels.count + c] = training ? static_cast<S>(s * inv_std * products / n) : S(0);
}

/// kSame: as of Normalize.
template <class T, int kLength, class Index, bool kSame>
__global__ void __launch_bounds__(kThreads)
    InputGradient(Gradient<T> gradient, Factors<ComputeType<T>> factors, T* dx, int64_t size,
                  DivisorOf<Index> spatial, DivisorOf<Index> count) {
  using S = ComputeType<T>;
  using V = Vector<T, kLength>;
  typename Affine<S>::One affine[kLength];
  typename Factors<S>::One factor[kLength];
  const auto look_up = [&](int64_t at) {
    ChannelWalk<Index> walk(static_cast<Index>(at), spatial, count);
#pragma unroll
    for (int j = 0; j < kLength; ++j, walk.Next()) {
      affine[j] = gradient.affine.Of(walk.channel);
      factor[j] = factors.Of(walk.channel);
    }
  };
  if (kSame) look_up(FirstElement() * kLength);
  for (int64_t at = FirstElement() * kLength; at < size; at += ElementStep() * kLength) {
    if (!kSame) look_up(at);
    const V dy = *reinterpret_cast<const V*>(gradient.dy + at);
    const V x = *reinterpret_cast<const V*>(gradient.x + at);
    V y = {};
    if (gradient.reads_y()) y = *reinterpret_cast<const V*>(gradient.y + at);
    V out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const S value = Cast<S>(x.v[j]);
      const S g = gradient(Cast<S>(dy.v[j]), value, Cast<S>(y.v[j]), affine[j]);
      out.v[j] = Cast<T>(factor[j].a * g - factor[j].b - factor[j].c * (value - affine[j].mean));
    }
    *reinterpret_cast<V*>(dx + at) = out;
  }
}

template <class T>
void Backward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Stream stream = StreamOf(execution.device);
  const Channels channels(spec);
  if (channels.count == 0) return;
  auto* partial = static_cast<double*>(execution.workspace);
  auto* affine = reinterpret_cast<S*>(partial + channels.parts * channels.count * 2);
  S* factors = affine + 3 * channels.count;
  const S* scale = InputOrNull<S>(execution, 2);
  const S* var = execution.in<S>(4);
  const dim3 each = GridFor(channels.count, kThreads);
  const dim3 warps = GridFor(channels.count, kThreads / kWarpThreads);
  LaunchIndependent(GivenStatistics<S>, each, kThreads, stream, channels.count, execution.in<S>(3),
                    var, scale, InputOrNull<S>(execution, 5), spec.epsilon, affine);
  const Gradient<T> gradient{execution.in<T>(0),
                             execution.in<T>(1),
                             InputOrNull<T>(execution, 6),
                             {affine, channels.count},
                             spec.relu};
  T* dadd = spec.need_add ? execution.out<T>(3) : nullptr;
  const bool need_sums =
      spec.need_scale || dadd || (spec.training && spec.need_x && channels.values > 0);
  if (need_sums) {
    const auto kernel = channels.by_columns() ? PartGradients<T, true> : PartGradients<T, false>;
    Launch(kernel, channels.grid(), channels.threads(), stream, gradient, channels, dadd, partial);
  }
  Launch(MergeGradients<S>, warps, kThreads, stream, need_sums ? partial : nullptr, channels,
         spec.training, scale, var, spec.epsilon, spec.need_scale ? execution.out<S>(1) : nullptr,
         spec.need_scale ? execution.out<S>(2) : nullptr, factors);
  const int64_t size = channels.count * channels.values;
  if (!spec.need_x || size == 0) return;
  T* dx = execution.out<T>(0);
  WithAccess<T>(
      channels, {gradient.dy, gradient.x, gradient.y, dx},
      [&]<int kLength, class Index, bool kSame>(Access<kLength, Index, kSame>, dim3 grid) {
        LaunchIndependent(InputGradient<T, kLength, Index, kSame>, grid, kThreads, stream, gradient,
                          Factors<S>{factors, channels.count}, dx, size,
                          DivisorOf<Index>(channels.spatial), DivisorOf<Index>(channels.count));
      });
}

size_t ForwardWorkspace(const BatchNormForwardSpec& spec) {
  return PartialBytes(spec) + static_cast<size_t>(spec.shape[1]) * 3 * sizeof(double);
}
size_t BackwardWorkspace(const BatchNormBackwardSpec& spec) {
  return PartialBytes(spec) + static_cast<size_t>(spec.shape[1]) * 6 * sizeof(double);
}

// x, add -> y
ImageLayouts ForwardLayouts(const BatchNormForwardSpec& spec) {
  const LayoutPtr image = ImageLayout(spec.x_layout != nullptr, spec.shape, spec.dtype);
  return {{image, nullptr, nullptr, nullptr, nullptr, image}, {image}};
}
// dy, x, y -> dx, dadd
ImageLayouts BackwardLayouts(const BatchNormBackwardSpec& spec) {
  const LayoutPtr image = ImageLayout(spec.x_layout != nullptr, spec.shape, spec.dtype);
  return {{image, image, nullptr, nullptr, nullptr, nullptr, image},
          {image, nullptr, nullptr, image}};
}

void RunForward(const BatchNormForwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

void RegisterBatchNorm() {
  RegisterImageKernels<BatchNormForwardSpec, RunForward, ForwardLayouts, ForwardWorkspace>();
  RegisterImageKernels<BatchNormBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
