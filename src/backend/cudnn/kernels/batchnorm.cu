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
#include <type_traits>

#include "backend/cudnn/kernels/element.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/image_plan.h"
#include "backend/cudnn/kernels/join.h"
#include "backend/cudnn/kernels/running_statistics.h"
#include "model/operation/batchnorm_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlocks = 512;    // of the sums: four for each multiprocessor of a large GPU
constexpr int64_t kLeastSteps = 8;  // of a thread in one part

/// Neighbours in memory that a thread of the sums takes at a time: a warp reads whole lines of 128
/// bytes, and there are registers left for several reads on their way.
constexpr int Neighbours(DType dtype) { return dtype == kFloat64 ? 2 : 4; }

template <class T>
const T* InputOrNull(const Execution& execution, size_t i) {
  return execution.inputs[i].empty() ? nullptr : execution.in<T>(i);
}
template <class T>
T* OutputOrNull(const Execution& execution, size_t i) {
  return execution.outputs[i].empty() ? nullptr : execution.out<T>(i);
}

/// Where the values of a channel lie. The channel of element i is i / spatial mod channels;
/// channels-last and (N, C) are the same with a spatial size of 1. There neighbours in memory are
/// channels, else values of one.
struct Channels {
  template <class Spec>
  Channels(const Spec& spec, int neighbours)
      : count(spec.shape[1]),
        spatial(spec.x_layout ? 1 : spec.shape.Count(2, spec.shape.rank())),
        values(spec.shape[0] * spec.shape.Count(2, spec.shape.rank())),
        neighbours((by_columns() ? count : spatial) % neighbours == 0 ? neighbours : 1),
        lanes(by_columns() ? LanesFor(count, this->neighbours) : 1),
        unit(by_columns() ? 1 : this->neighbours),
        steps(values / unit),
        parts(std::clamp<int64_t>(kBlocks / std::max<int64_t>(blocks(), 1), 1,
                                  std::max<int64_t>(steps / (kLeastSteps * kThreads / lanes), 1))),
        divisor(std::max<int64_t>(spatial, 1)) {
    Check(FitsIndex32(values), "BatchNorm", "a channel has ", values, " values, more than 2^31");
  }
  bool by_columns() const { return spatial == 1; }
  /// Blocks that go through all channels along x, of which a grid has room for 2^31 − 1, and
  /// through all parts along y.
  dim3 grid() const { return dim3(static_cast<unsigned>(blocks()), static_cast<unsigned>(parts)); }
  int64_t blocks() const {
    const int64_t width = int64_t{lanes} * neighbours;
    return by_columns() ? (count + width - 1) / width : count;
  }
  /// Of a block: a warp where there are blocks enough, each with little to do.
  int threads() const {
    return !by_columns() && count >= kBlocks && values <= kThreads ? kWarpThreads : kThreads;
  }
  /// Of a block that joins the parts of a channel.
  int merging_threads() const { return parts > 2 * kWarpThreads ? kThreads : kWarpThreads; }
  /// The first step of a part.
  __device__ int64_t PartBegin(int64_t part) const { return part * steps / parts; }

  int64_t count, spatial, values;
  int neighbours;
  int lanes;      ///< threads side by side along the channels, a power of two
  int unit;       ///< values of a channel in one step
  int64_t steps;  ///< to go through all of them
  int64_t parts;
  Divisor divisor;
};

/// As many neighbours at a time as the addresses allow.
template <class Spec>
Channels ChannelsOf(const Spec& spec, std::initializer_list<const void*> arrays) {
  int neighbours = Neighbours(spec.dtype);
  for (const void* p : arrays)
    if (!IsAligned(p, static_cast<size_t>(neighbours) * SizeOf(spec.dtype))) neighbours = 1;
  return Channels(spec, neighbours);
}

/// What a thread has of one part: of as many channels as it takes neighbours, or of one.
template <int kLength, bool kByColumns>
struct Part {
  static constexpr int kSums = kByColumns ? kLength : 1;

  __device__ explicit Part(const Channels& channels) : channels(channels) {
    start = channels.PartBegin(blockIdx.y);
    end = channels.PartBegin(blockIdx.y + 1);
    count = (end - start) * channels.unit;
    if constexpr (kByColumns) {
      const int64_t first = int64_t{blockIdx.x} * channels.lanes * kLength;
      const int thread = static_cast<int>(threadIdx.x);
      const int row = thread / channels.lanes;
      channel = first + (thread - row * channels.lanes) * kLength;
      own = thread < channels.lanes * kLength ? first + thread : channels.count;
      begin = start + row;
      step = kThreads / channels.lanes;
    } else {
      channel = blockIdx.x;
      own = threadIdx.x == 0 ? channel : channels.count;
      begin = start + threadIdx.x;
      step = blockDim.x;
    }
    exists = channel < channels.count;
    if (!exists) begin = end;
  }
  /// Whether it finishes the sums of a channel, and which.
  __device__ bool finishes() const { return own < channels.count; }

  /// Where step j of a channel lies.
  __device__ int64_t At(int64_t j, int64_t of_channel) const {
    if constexpr (kByColumns) {
      return j * channels.count + of_channel;
    } else {
      j *= kLength;
      const uint32_t image = channels.divisor.Divide(static_cast<uint32_t>(j));
      return (image * channels.count + of_channel) * channels.spatial +
             (j - image * channels.spatial);
    }
  }
  /// Calls use(load(at), at) for where each step lies; several loads are on their way at a time.
  template <int kAhead, class Load, class Use>
  __device__ __forceinline__ void ForEach(const Load& load, const Use& use) const {
    int64_t j = begin;
    for (; j + (kAhead - 1) * step < end; j += kAhead * step) {
      decltype(load(int64_t{})) loaded[kAhead];
#pragma unroll
      for (int k = 0; k < kAhead; ++k) loaded[k] = load(At(j + k * step, channel));
#pragma unroll
      for (int k = 0; k < kAhead; ++k) use(loaded[k], At(j + k * step, channel));
    }
    for (; j < end; j += step) use(load(At(j, channel)), At(j, channel));
  }
  /// Of the channel that this thread finishes, the sum over all threads that have values of it.
  __device__ double Sum(double (&sums)[kSums]) const {
    if constexpr (kByColumns) {
      return JoinColumns<kThreads>(sums, channels.lanes, 0.0, Plus());
    } else {
      return SumBlock(sums[0]);
    }
  }
  /// Two sums per part and channel: [part][channel][2].
  __device__ void Store(double* partial, double a, double b) const {
    StoreVector(partial + (int64_t{blockIdx.y} * channels.count + own) * 2, Vector<double>{{a, b}});
  }

  const Channels& channels;
  int64_t start;             ///< the first step of the part, whose ever it is
  int64_t begin, end, step;  ///< those of this thread
  int64_t count;             ///< values of each channel
  int64_t channel;           ///< the first one of which it has values
  int64_t own;               ///< the one whose sums it finishes
  bool exists;
};

/// Calls launch with the kind of Part that fits.
template <class T, class F>
void WithPart(const Channels& channels, const F& launch) {
  constexpr int kNeighbours = Neighbours(kDTypeOf<T>);
  if (channels.neighbours > 1) {
    channels.by_columns() ? launch.template operator()<kNeighbours, true>()
                          : launch.template operator()<kNeighbours, false>();
  } else {
    channels.by_columns() ? launch.template operator()<1, true>()
                          : launch.template operator()<1, false>();
  }
}

/// What is taken off the values before their squares are added up: one of them.
template <class T>
__device__ __forceinline__ double Origin(T value) {
  const auto origin = static_cast<double>(Cast<ComputeType<T>>(value));
  return std::fabs(origin) <= std::numeric_limits<double>::max() ? origin : 0;
}

template <class T, int kLength, bool kByColumns>
__global__ void __launch_bounds__(kThreads)
    PartStatistics(const T* x, Channels channels, double* partial) {
  using S = ComputeType<T>;
  const Part<kLength, kByColumns> part(channels);
  constexpr int kSums = part.kSums;
  double sums[kSums] = {}, squares[kSums] = {}, origin[kSums] = {};
#pragma unroll
  for (int c = 0; c < kSums; ++c)
    if (part.exists) origin[c] = Origin(x[part.At(part.start, part.channel + c)]);
  part.template ForEach<4>([&](int64_t at) { return LoadVector<T, kLength>(x + at); },
                           [&](const Vector<T, kLength>& values, int64_t) {
#pragma unroll
                             for (int k = 0; k < kLength; ++k) {
                               const int c = kByColumns ? k : 0;
                               const double d =
                                   static_cast<double>(Cast<S>(values.v[k])) - origin[c];
                               sums[c] += d;
                               squares[c] += d * d;
                             }
                           });
  const double sum = part.Sum(sums), square = part.Sum(squares);
  if (!part.finishes()) return;
  const double mean = sum / static_cast<double>(part.count);
  const double rest = square - sum * mean;
  part.Store(partial, Origin(x[part.At(part.start, part.own)]) + mean, rest < 0 ? 0.0 : rest);
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
  /// Of neighbours, whose numbers and the number of all are multiples of kLength.
  template <int kLength>
  __device__ void Of(int64_t c, One (&of)[kLength]) const {
    const auto means = LoadVector<S, kLength>(of_channel + c);
    const auto factors = LoadVector<S, kLength>(of_channel + channels + c);
    const auto biases = LoadVector<S, kLength>(of_channel + 2 * channels + c);
#pragma unroll
    for (int j = 0; j < kLength; ++j) of[j] = {means.v[j], factors.v[j], biases.v[j]};
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

/// Where the statistics of a batch go, and what follows from them.
template <class S>
struct Conclusion {
  Conclusion(const BatchNormForwardSpec& spec, const Execution& execution, S* affine)
      : momentum(execution.scalars.v[0]),
        epsilon(spec.epsilon),
        scale(InputOrNull<S>(execution, 1)),
        bias(InputOrNull<S>(execution, 2)),
        mean(execution.out<S>(1)),
        var(execution.out<S>(2)),
        running_mean(OutputOrNull<S>(execution, 3)),
        running_var(OutputOrNull<S>(execution, 4)),
        affine(affine) {}
  /// Of channel c, into which `count` values went.
  __device__ void Draw(int64_t channels, int64_t c, double count,
                       const BatchNormMoments& moments) const {
    const S batch_mean = mean[c] = static_cast<S>(moments.mean);
    const S batch_var = var[c] = static_cast<S>(moments.var);
    UpdateRunning(c, count, momentum, batch_mean, batch_var, running_mean, running_var);
    WriteAffine(affine, channels, c, batch_mean, batch_var, scale, bias, epsilon);
  }

  double momentum, epsilon;
  const S *scale, *bias;
  S *mean, *var, *running_mean, *running_var, *affine;
};

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

/// All of a warp in the order of its lanes.
__device__ inline Moments MergeWarp(Moments all) {
  const unsigned lane = threadIdx.x % kWarpThreads;
#pragma unroll
  for (unsigned bits = 1; bits < kWarpThreads; bits *= 2) {
    const Moments other = {__shfl_xor_sync(kAllLanes, all.count, static_cast<int>(bits)),
                           __shfl_xor_sync(kAllLanes, all.mean, static_cast<int>(bits)),
                           __shfl_xor_sync(kAllLanes, all.squares, static_cast<int>(bits))};
    all = lane & bits ? Moments::Merge(other, all) : Moments::Merge(all, other);
  }
  return all;
}

/// Of a block of one warp or of kThreads threads.
__device__ inline Moments MergeBlock(Moments all) {
  constexpr unsigned kWarps = kThreads / kWarpThreads;
  SINGA_SHARED(double, 3 * kWarps, of_warp);
  all = MergeWarp(all);
  if (blockDim.x == kWarpThreads) return all;
  const unsigned lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  if (lane == 0) {
    of_warp[3 * warp] = all.count;
    of_warp[3 * warp + 1] = all.mean;
    of_warp[3 * warp + 2] = all.squares;
  }
  __syncthreads();
  all = {};
  if (lane < kWarps) all = {of_warp[3 * lane], of_warp[3 * lane + 1], of_warp[3 * lane + 2]};
  return MergeWarp(all);
}

/// A block for each channel.
template <class S>
__global__ void __launch_bounds__(kThreads)
    MergeStatistics(const double* partial, Channels channels, Conclusion<S> conclusion) {
  const int64_t c = blockIdx.x;
  Moments all;
  for (int64_t p = threadIdx.x; p < channels.parts && channels.values > 0; p += blockDim.x) {
    const int64_t steps = channels.PartBegin(p + 1) - channels.PartBegin(p);
    const auto pair = LoadVector(partial + (p * channels.count + c) * 2);
    all = Moments::Merge(all, {static_cast<double>(steps * channels.unit), pair.v[0], pair.v[1]});
  }
  all = MergeBlock(all);
  if (threadIdx.x > 0) return;
  conclusion.Draw(channels.count, c, all.count,
                  {all.mean, all.count > 0 ? all.squares / all.count : 0});
}

/// From sums that are there.
template <class S>
__global__ void __launch_bounds__(kThreads)
    DivideSums(const S* sums, const S* squares, int64_t channels, double count,
               Conclusion<S> conclusion) {
  const int64_t c = FirstElement();
  if (c >= channels) return;
  conclusion.Draw(channels, c, count, BatchNormMomentsOf(count, sums[c], squares[c]));
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
/// channels, neighbours all, and looks up what belongs to them once. The arithmetic has no
/// branches: where values come from several, ptxas takes the stores of vectors apart.
template <class T, int kLength, class Index, bool kSame>
__global__ void __launch_bounds__(kThreads)
    Normalize(const T* x, const T* add, T* y, int64_t size, DivisorOf<Index> spatial,
              DivisorOf<Index> count, Affine<ComputeType<T>> affine, bool relu) {
  using S = ComputeType<T>;
  using V = Vector<T, kLength>;
  typename Affine<S>::One of[kLength];
  const auto look_up = [&](int64_t at) {
    ChannelWalk<Index> walk(static_cast<Index>(at), spatial, count);
    if constexpr (kSame) {
      affine.Of(walk.channel, of);
    } else {
#pragma unroll
      for (int j = 0; j < kLength; ++j, walk.Next()) of[j] = affine.Of(walk.channel);
    }
  };
  if (kSame) look_up(FirstElement() * kLength);
  constexpr int kAhead = kSame ? 2 : 1;  // vectors on their way
  const int64_t step = ElementStep() * kLength;
  const S least = relu ? S(0) : -std::numeric_limits<S>::infinity();
  for (int64_t first = FirstElement() * kLength; first < size; first += kAhead * step) {
    V in[kAhead] = {}, added[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
#pragma unroll
      for (int j = 0; j < kLength; ++j) added[k].v[j] = Cast<T>(S(-0.0));  // which changes nothing
      const int64_t at = first + k * step;
      if (at >= size) break;
      in[k] = LoadVector<T, kLength>(x + at);
      if (add) added[k] = LoadVector<T, kLength>(add + at);
    }
    if (!kSame) look_up(first);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int64_t at = first + k * step;
      if (at >= size) break;
      V out;
#pragma unroll
      for (int j = 0; j < kLength; ++j) {
        const S v = of[j](Cast<S>(in[k].v[j])) + Cast<S>(added[k].v[j]);
        out.v[j] = Cast<T>(v <= least ? least : v);
      }
      StoreVector(y + at, out);
    }
  }
}

/// How a kernel goes through all elements.
template <int kLength, class Index, bool kSame>
struct Access {};

/// Calls launch(access, grid) as sizes and addresses allow.
template <class T, class F>
void WithAccess(const Channels& channels, std::initializer_list<const void*> arrays,
                const F& launch) {
  constexpr int kLength = kVectorLength<T>;
  constexpr int64_t kMostBlocks = 1024;
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

/// However the addresses are.
template <class Spec>
size_t PartialBytes(const Spec& spec) {
  const int64_t parts =
      std::max(Channels(spec, 1).parts, Channels(spec, Neighbours(spec.dtype)).parts);
  return static_cast<size_t>(parts * spec.shape[1]) * 2 * sizeof(double);
}

template <class T, class Spec>
void Forward(const Spec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Stream stream = StreamOf(execution.device);
  const T* x = execution.in<T>(0);
  const Channels channels = ChannelsOf(spec, {x});
  if (channels.count == 0) return;
  auto* partial = static_cast<double*>(execution.workspace);
  auto* affine = reinterpret_cast<S*>(partial + channels.parts * channels.count * 2);
  const dim3 each = GridFor(channels.count, kThreads);
  if constexpr (std::is_same_v<Spec, BatchNormFromSumsSpec>) {
    LaunchIndependent(DivideSums<S>, each, kThreads, stream, execution.in<S>(6), execution.in<S>(7),
                      channels.count, static_cast<double>(channels.values),
                      Conclusion<S>(spec, execution, affine));
  } else if (spec.training) {
    if (channels.values > 0) {
      WithPart<T>(channels, [&]<int kLength, bool kByColumns>() {
        Launch(PartStatistics<T, kLength, kByColumns>, channels.grid(), channels.threads(), stream,
               x, channels, partial);
      });
    }
    Launch(MergeStatistics<S>, GridFor(channels.count, 1), channels.merging_threads(), stream,
           partial, channels, Conclusion<S>(spec, execution, affine));
  } else {
    LaunchIndependent(GivenStatistics<S>, each, kThreads, stream, channels.count,
                      execution.in<S>(3), execution.in<S>(4), InputOrNull<S>(execution, 1),
                      InputOrNull<S>(execution, 2), spec.epsilon, affine);
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

/// dy, or dy + dy2 where that is not null, cut off where ReLU was: where y, or bn(x) if y is null,
/// is not positive. Without branches, as in Normalize.
template <class T>
struct Gradient {
  using S = ComputeType<T>;
  const T* dy;
  const T* dy2;
  const T* x;
  const T* y;
  Affine<S> affine;
  bool relu;
  __device__ bool reads_y() const { return relu && y; }

  /// Some neighbours: dy, dy2, x, and that from which the sign follows, y or x again.
  template <int kLength>
  struct Values {
    Vector<T, kLength> dy, dy2, x, sign;
    /// The gradient before it is cut off, rounded as if it had been stored.
    __device__ S Arrived(int k) const {
      return Cast<S>(Cast<T>(Cast<S>(dy.v[k]) + Cast<S>(dy2.v[k])));
    }
  };
  template <int kLength>
  __device__ Values<kLength> Load(int64_t at) const {
    Values<kLength> values;
    values.dy = LoadVector<T, kLength>(dy + at);
#pragma unroll
    for (int k = 0; k < kLength; ++k) values.dy2.v[k] = Cast<T>(S(-0.0));  // which changes nothing
    if (dy2) values.dy2 = LoadVector<T, kLength>(dy2 + at);
    values.sign = values.x = LoadVector<T, kLength>(x + at);
    if (reads_y()) values.sign = LoadVector<T, kLength>(y + at);
    return values;
  }
  /// The affine map from that to the sign.
  __device__ typename Affine<S>::One Sign(const typename Affine<S>::One& of) const {
    return reads_y() ? typename Affine<S>::One{S(0), S(1), S(0)} : of;
  }
  /// What it is compared with; nothing is less than or equal to NaN.
  __device__ S Least() const { return relu ? S(0) : std::numeric_limits<S>::quiet_NaN(); }
};

/// Σ dy and Σ dy · (x − mean) of each part; the gradient of what was added on the way.
template <class T, int kLength, bool kByColumns>
__global__ void __launch_bounds__(kThreads, 2)
    PartGradients(Gradient<T> gradient, Channels channels, T* dadd, double* partial) {
  using S = ComputeType<T>;
  using Values = typename Gradient<T>::template Values<kLength>;
  const Part<kLength, kByColumns> part(channels);
  constexpr int kSums = part.kSums;
  double sums[kSums] = {}, products[kSums] = {}, mean[kSums] = {};
  typename Affine<S>::One of[kSums];
  gradient.affine.Of(part.exists ? part.channel : 0, of);
  const S least = gradient.Least();
#pragma unroll
  for (int c = 0; c < kSums; ++c) {
    mean[c] = static_cast<double>(of[c].mean);
    of[c] = gradient.Sign(of[c]);
  }
  part.template ForEach<sizeof(T) == 2 ? 4 : 2>(
      [&](int64_t at) { return gradient.template Load<kLength>(at); },
      [&](const Values& values, int64_t at) {
        Vector<T, kLength> added;
#pragma unroll
        for (int k = 0; k < kLength; ++k) {
          const int c = kByColumns ? k : 0;
          const S dy = of[c](Cast<S>(values.sign.v[k])) <= least ? S(0) : values.Arrived(k);
          const auto x = static_cast<double>(Cast<S>(values.x.v[k]));
          added.v[k] = Cast<T>(dy);
          sums[c] += static_cast<double>(dy);
          products[c] += static_cast<double>(dy) * (x - mean[c]);
        }
        if (dadd) StoreVector(dadd + at, added);
      });
  const double sum = part.Sum(sums), product = part.Sum(products);
  if (part.finishes()) part.Store(partial, sum, product);
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
  /// Of neighbours, as of Affine.
  template <int kLength>
  __device__ void Of(int64_t channel, One (&of)[kLength]) const {
    const auto a = LoadVector<S, kLength>(of_channel + channel);
    const auto b = LoadVector<S, kLength>(of_channel + channels + channel);
    const auto c = LoadVector<S, kLength>(of_channel + 2 * channels + channel);
#pragma unroll
    for (int j = 0; j < kLength; ++j) of[j] = {a.v[j], b.v[j], c.v[j]};
  }

  const S* of_channel;
  int64_t channels;
};

/// dscale, dbias, and the factors of dx; a block for each channel.
template <class S>
__global__ void __launch_bounds__(kThreads)
    MergeGradients(const double* partial, Channels channels, bool training, const S* scale,
                   const S* var, double epsilon, S* dscale, S* dbias, S* factors) {
  const int64_t c = blockIdx.x;
  double sum = 0, products = 0;
  for (int64_t p = threadIdx.x; partial && p < channels.parts; p += blockDim.x) {
    const auto pair = LoadVector(partial + (p * channels.count + c) * 2);
    sum += pair.v[0];
    products += pair.v[1];
  }
  sum = SumBlock(sum);
  products = SumBlock(products);
  if (threadIdx.x > 0) return;
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
  typename Affine<S>::One affine[kLength];
  typename Factors<S>::One factor[kLength];
  const auto look_up = [&](int64_t at) {
    ChannelWalk<Index> walk(static_cast<Index>(at), spatial, count);
    if constexpr (kSame) {
      gradient.affine.Of(walk.channel, affine);
      factors.Of(walk.channel, factor);
    } else {
#pragma unroll
      for (int j = 0; j < kLength; ++j, walk.Next()) {
        affine[j] = gradient.affine.Of(walk.channel);
        factor[j] = factors.Of(walk.channel);
      }
    }
  };
  if (kSame) look_up(FirstElement() * kLength);
  const S least = gradient.Least();
  for (int64_t at = FirstElement() * kLength; at < size; at += ElementStep() * kLength) {
    const auto values = gradient.template Load<kLength>(at);
    if (!kSame) look_up(at);
    Vector<T, kLength> out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const S x = Cast<S>(values.x.v[j]), dy = values.Arrived(j);
      const S g = gradient.Sign(affine[j])(Cast<S>(values.sign.v[j])) <= least ? S(0) : dy;
      out.v[j] = Cast<T>(factor[j].a * g - factor[j].b - factor[j].c * (x - affine[j].mean));
    }
    StoreVector(dx + at, out);
  }
}

template <class T>
void Backward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  using S = ComputeType<T>;
  const Stream stream = StreamOf(execution.device);
  T* dadd = spec.need_add ? execution.out<T>(3) : nullptr;
  const T* dy2 = spec.has_dy2 ? execution.in<T>(BatchNormBackwardSpec::kDy2) : nullptr;
  const Channels channels = ChannelsOf(
      spec, {execution.in<T>(0), dy2, execution.in<T>(1), InputOrNull<T>(execution, 6), dadd});
  if (channels.count == 0) return;
  auto* partial = static_cast<double*>(execution.workspace);
  auto* affine = reinterpret_cast<S*>(partial + channels.parts * channels.count * 2);
  S* factors = affine + 3 * channels.count;
  const S* scale = InputOrNull<S>(execution, 2);
  const S* var = execution.in<S>(4);
  const dim3 each = GridFor(channels.count, kThreads);
  LaunchIndependent(GivenStatistics<S>, each, kThreads, stream, channels.count, execution.in<S>(3),
                    var, scale, InputOrNull<S>(execution, 5), spec.epsilon, affine);
  Gradient<T> gradient{execution.in<T>(0),       dy2,
                       execution.in<T>(1),       InputOrNull<T>(execution, 6),
                       {affine, channels.count}, spec.relu};
  const bool need_sums =
      spec.need_scale || dadd || (spec.training && spec.need_x && channels.values > 0);
  if (need_sums) {
    WithPart<T>(channels, [&]<int kLength, bool kByColumns>() {
      Launch(PartGradients<T, kLength, kByColumns>, channels.grid(), channels.threads(), stream,
             gradient, channels, dadd, partial);
    });
  }
  Launch(MergeGradients<S>, GridFor(channels.count, 1), channels.merging_threads(), stream,
         need_sums ? partial : nullptr, channels, spec.training, scale, var, spec.epsilon,
         spec.need_scale ? execution.out<S>(1) : nullptr,
         spec.need_scale ? execution.out<S>(2) : nullptr, factors);
  const int64_t size = channels.count * channels.values;
  if (!spec.need_x || size == 0) return;
  T* dx = execution.out<T>(0);
  if (dadd) {  // which is dy where that counts: the second pass has nothing to decide any more
    gradient.dy = dadd;
    gradient.dy2 = gradient.y = nullptr;
    gradient.relu = false;
  }
  WithAccess<T>(
      channels, {gradient.dy, gradient.x, gradient.y, dx},
      [&]<int kLength, class Index, bool kSame>(Access<kLength, Index, kSame>, dim3 grid) {
        LaunchIndependent(InputGradient<T, kLength, Index, kSame>, grid, kThreads, stream, gradient,
                          Factors<S>{factors, channels.count}, dx, size,
                          DivisorOf<Index>(channels.spatial), DivisorOf<Index>(channels.count));
      });
}

template <class Spec>
size_t ForwardWorkspace(const Spec& spec) {
  return PartialBytes(spec) + static_cast<size_t>(spec.shape[1]) * 3 * sizeof(double);
}
size_t BackwardWorkspace(const BatchNormBackwardSpec& spec) {
  return PartialBytes(spec) + static_cast<size_t>(spec.shape[1]) * 6 * sizeof(double);
}

// x, add -> y
template <class Spec>
ImageLayouts ForwardLayouts(const Spec& spec) {
  const LayoutPtr image = ImageLayout(spec.x_layout != nullptr, spec.shape, spec.dtype);
  return {{image, nullptr, nullptr, nullptr, nullptr, image}, {image}};
}
// dy, x, y, dy2 -> dx, dadd
ImageLayouts BackwardLayouts(const BatchNormBackwardSpec& spec) {
  const LayoutPtr image = ImageLayout(spec.x_layout != nullptr, spec.shape, spec.dtype);
  return {{image, image, nullptr, nullptr, nullptr, nullptr, image, image},
          {image, nullptr, nullptr, image}};
}

template <class Spec>
void RunForward(const Spec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

void RunBackward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

template <class Spec>
void RegisterForward() {
  RegisterImageKernels<Spec, RunForward<Spec>, ForwardLayouts<Spec>, ForwardWorkspace<Spec>>();
}

}  // namespace

void RegisterBatchNorm() {
  RegisterForward<BatchNormForwardSpec>();
  RegisterForward<BatchNormFromSumsSpec>();
  RegisterImageKernels<BatchNormBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
