// Batch normalisation (Ioffe and Szegedy 2015), with what may follow: an addition, an activation.
//
// The values of a channel are cut into parts, one block each, whose statistics are taken in one
// pass: sums of the distances from the first value and of their squares. A second kernel merges the
// parts by the rule of Chan, Golub and LeVeque (1979), so data with a mean far from zero keeps its
// variance. Sums are doubles and have one order.
//
// y follows from the statistics as BatchNormAffine says, to the bit: these files are compiled
// without contraction to fused multiply-adds.

#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/cuda/kernels/common/image_plan.h"
#include "backend/cuda/kernels/norm/batchnorm_affine.h"
#include "backend/cuda/kernels/norm/running_statistics.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = Channels::kThreads;

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

/// Where the statistics of a batch go, and what follows from them.
template <class S>
struct Conclusion {
  Conclusion(const BatchNormForwardSpec& spec, const Execution& execution, S* affine)
      : momentum(execution.scalars.v[0]),
        epsilon(spec.epsilon),
        scale(execution.in_or_null<S>(1)),
        bias(execution.in_or_null<S>(2)),
        mean(execution.out<S>(1)),
        var(execution.out<S>(2)),
        running_mean(execution.out_or_null<S>(3)),
        running_var(execution.out_or_null<S>(4)),
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

/// A block for each channel. Joins the parts' means and their sums of squared distances from these.
template <class S>
__global__ void __launch_bounds__(kThreads)
    MergeStatistics(const double* partial, Channels channels, Conclusion<S> conclusion) {
  SINGA_SHARED(double, 1, of_block);
  const int64_t c = blockIdx.x;
  const auto sum_of_parts = [&](const auto& of_part) {
    double sum = 0;
    for (int64_t p = threadIdx.x; p < channels.parts && channels.values > 0; p += blockDim.x) {
      const int64_t steps = channels.PartBegin(p + 1) - channels.PartBegin(p);
      const auto pair = LoadVector(partial + (p * channels.count + c) * 2);
      sum += of_part(static_cast<double>(steps * channels.unit), pair.v[0], pair.v[1]);
    }
    return SumBlock(sum);
  };
  const auto count = static_cast<double>(channels.values);
  const double sum = sum_of_parts([](double n, double mean, double) { return n * mean; });
  if (threadIdx.x == 0) of_block[0] = count > 0 ? sum / count : 0;
  __syncthreads();
  const double mean = of_block[0];
  const double squares = sum_of_parts([mean](double n, double part_mean, double part_squares) {
    const double distance = part_mean - mean;
    return part_squares + n * (distance * distance);
  });
  if (threadIdx.x > 0) return;
  conclusion.Draw(channels.count, c, count, {mean, count > 0 ? squares / count : 0});
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

/// y = bn(x), + add where that is not null, and then the activation. kSame: a thread always comes
/// to the same channels, neighbours all, and looks up what belongs to them once.
template <class T, int kLength, class Index, bool kSame, bool kOther>
__global__ void __launch_bounds__(kThreads)
    Normalize(const T* x, const T* add, T* y, int64_t size, DivisorOf<Index> spatial,
              DivisorOf<Index> count, Affine<ComputeType<T>> affine,
              Function<ComputeType<T>, kOther> function) {
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
        out.v[j] = Cast<T>(function(v));
      }
      StoreVector(y + at, out);
    }
  }
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
                      execution.in<S>(3), execution.in<S>(4), execution.in_or_null<S>(1),
                      execution.in_or_null<S>(2), spec.epsilon, affine);
  }
  const int64_t size = channels.count * channels.values;
  if (size == 0) return;
  const T* add = execution.in_or_null<T>(5);
  T* y = execution.out<T>(0);
  WithAccess<T>(
      channels, {x, add, y},
      [&]<int kLength, class Index, bool kSame>(Access<kLength, Index, kSame>, dim3 grid) {
        WithFunction(spec.activation, [&](auto other) {
          constexpr bool kOther = decltype(other)::value;
          LaunchIndependent(Normalize<T, kLength, Index, kSame, kOther>, grid, kThreads, stream, x,
                            add, y, size, DivisorOf<Index>(channels.spatial),
                            DivisorOf<Index>(channels.count), Affine<S>{affine, channels.count},
                            Function<S, kOther>(spec.activation));
        });
      });
}

template <class Spec>
size_t ForwardWorkspace(const Spec& spec) {
  return PartialBytes(spec) + static_cast<size_t>(spec.shape[1]) * 3 * sizeof(double);
}

// x, add -> y
template <class Spec>
ImageLayouts ForwardLayouts(const Spec& spec) {
  const LayoutPtr image = ImageLayout(spec.x_layout != nullptr, spec.shape, spec.dtype);
  return {{image, nullptr, nullptr, nullptr, nullptr, image}, {image}};
}

template <class Spec>
void RunForward(const Spec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Forward<T>(spec, execution); });
}

template <class Spec>
void RegisterForward() {
  RegisterImageKernels<Spec, RunForward<Spec>, ForwardLayouts<Spec>, ForwardWorkspace<Spec>>();
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterForward<BatchNormForwardSpec>();
  RegisterForward<BatchNormFromSumsSpec>();
}

}  // namespace singa::cuda
