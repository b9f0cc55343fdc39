// Backward of batch normalisation: the gradients of what batchnorm.cu computes.
//
// With x̂ = (x − mean) / std, s = scale / std and means over the values of one channel:
//   dscale = Σ dy · x̂,  dbias = Σ dy
//   dx = s · (dy − mean(dy) − x̂ · mean(dy · x̂)), or s · dy when mean and var are constants.

#include <cmath>
#include <type_traits>

#include "backend/cuda/kernels/common/image_plan.h"
#include "backend/cuda/kernels/norm/batchnorm_affine.h"
#include "model/operation/batchnorm/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = Channels::kThreads;

/// dy, or dy + dy2 where that is not null, times the slope of the activation: at y, from which that
/// of ReLU follows too, or at bn(x) if y is null.
template <class T, bool kOther>
struct Gradient {
  using S = ComputeType<T>;
  const T* dy;
  const T* dy2;
  const T* x;
  const T* y;
  Affine<S> affine;
  Function<S, kOther> function;
  __device__ bool reads_y() const { return function.is_relu() && y; }

  /// Some neighbours: dy, dy2, x, and that from which the sign follows, y or x again.
  template <int kLength>
  struct Values {
    Vector<T, kLength> dy, dy2, x, at;
    /// The gradient before the activation's, rounded as if it had been stored.
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
    values.at = values.x = LoadVector<T, kLength>(x + at);
    if (reads_y()) values.at = LoadVector<T, kLength>(y + at);
    return values;
  }
  /// The affine map from `at` to the activation's argument.
  __device__ typename Affine<S>::One Argument(const typename Affine<S>::One& of) const {
    return reads_y() ? typename Affine<S>::One{S(0), S(1), S(0)} : of;
  }
};

/// Σ dy and Σ dy · (x − mean) of each part; the gradient of what was added on the way.
template <class T, int kLength, bool kByColumns, bool kOther>
__global__ void __launch_bounds__(kThreads, 2)
    PartGradients(Gradient<T, kOther> gradient, Channels channels, T* dadd, double* partial) {
  using S = ComputeType<T>;
  using Values = typename Gradient<T, kOther>::template Values<kLength>;
  const Part<kLength, kByColumns> part(channels);
  constexpr int kSums = part.kSums;
  // The sums of a few 16-bit values are float32, which takes less time than float64.
  constexpr bool kNarrow = sizeof(T) == 2;
  using Few = std::conditional_t<kNarrow, float, double>;
  Few few_sums[kSums] = {}, few_products[kSums] = {}, mean[kSums] = {};
  double sums[kSums] = {}, products[kSums] = {};
  typename Affine<S>::One of[kSums];
  gradient.affine.Of(part.exists ? part.channel : 0, of);
#pragma unroll
  for (int c = 0; c < kSums; ++c) {
    mean[c] = static_cast<Few>(of[c].mean);
    of[c] = gradient.Argument(of[c]);
  }
  part.template ForEach<kNarrow ? 4 : 2>(
      [&](int64_t at) { return gradient.template Load<kLength>(at); },
      [&](const Values& values, int64_t at) {
        Vector<T, kLength> added;
#pragma unroll
        for (int k = 0; k < kLength; ++k) {
          const int c = kByColumns ? k : 0;
          const S dy =
              gradient.function.Gradient(values.Arrived(k), of[c](Cast<S>(values.at.v[k])));
          const auto x = static_cast<Few>(Cast<S>(values.x.v[k]));
          added.v[k] = Cast<T>(dy);
          if constexpr (kNarrow) {
            few_sums[c] += dy;
            few_products[c] = std::fma(dy, x - mean[c], few_products[c]);
          } else {
            sums[c] += static_cast<double>(dy);
            products[c] = std::fma(static_cast<double>(dy), x - mean[c], products[c]);
          }
        }
        if (dadd) StoreVector(dadd + at, added);
      },
      [&] {
        if constexpr (kNarrow) {
#pragma unroll
          for (int c = 0; c < kSums; ++c) {
            sums[c] += static_cast<double>(few_sums[c]);
            products[c] += static_cast<double>(few_products[c]);
            few_sums[c] = few_products[c] = 0;
          }
        }
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
template <class T, int kLength, class Index, bool kSame, bool kOther>
__global__ void __launch_bounds__(kThreads)
    InputGradient(Gradient<T, kOther> gradient, Factors<ComputeType<T>> factors, T* dx,
                  int64_t size, DivisorOf<Index> spatial, DivisorOf<Index> count) {
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
  for (int64_t at = FirstElement() * kLength; at < size; at += ElementStep() * kLength) {
    const auto values = gradient.template Load<kLength>(at);
    if (!kSame) look_up(at);
    Vector<T, kLength> out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) {
      const S x = Cast<S>(values.x.v[j]);
      const S argument = gradient.Argument(affine[j])(Cast<S>(values.at.v[j]));
      const S g = gradient.function.Gradient(values.Arrived(j), argument);
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
      spec, {execution.in<T>(0), dy2, execution.in<T>(1), execution.in_or_null<T>(6), dadd});
  if (channels.count == 0) return;
  auto* partial = static_cast<double*>(execution.workspace);
  auto* affine = reinterpret_cast<S*>(partial + channels.parts * channels.count * 2);
  S* factors = affine + 3 * channels.count;
  const S* scale = execution.in_or_null<S>(2);
  const S* var = execution.in<S>(4);
  const dim3 each = GridFor(channels.count, kThreads);
  LaunchIndependent(GivenStatistics<S>, each, kThreads, stream, channels.count, execution.in<S>(3),
                    var, scale, execution.in_or_null<S>(5), spec.epsilon, affine);
  const auto gradient_through = [&]<bool kOther>(const Activation& activation) {
    return Gradient<T, kOther>{execution.in<T>(0),       dy2,
                               execution.in<T>(1),       execution.in_or_null<T>(6),
                               {affine, channels.count}, Function<S, kOther>(activation)};
  };
  const bool need_sums =
      spec.need_scale || dadd || (spec.training && spec.need_x && channels.values > 0);
  if (need_sums) {
    WithPart<T>(channels, [&]<int kLength, bool kByColumns>() {
      WithFunction(spec.activation, [&](auto other) {
        constexpr bool kOther = decltype(other)::value;
        Launch(PartGradients<T, kLength, kByColumns, kOther>, channels.grid(), channels.threads(),
               stream, gradient_through.template operator()<kOther>(spec.activation), channels,
               dadd, partial);
      });
    });
  }
  Launch(MergeGradients<S>, GridFor(channels.count, 1), channels.merging_threads(), stream,
         need_sums ? partial : nullptr, channels, spec.training, scale, var, spec.epsilon,
         spec.need_scale ? execution.out<S>(1) : nullptr,
         spec.need_scale ? execution.out<S>(2) : nullptr, factors);
  const int64_t size = channels.count * channels.values;
  if (!spec.need_x || size == 0) return;
  T* dx = execution.out<T>(0);
  // dadd is dy behind the activation: the second pass has none.
  const Activation activation = dadd ? Activation() : spec.activation;
  WithFunction(activation, [&](auto other) {
    constexpr bool kOther = decltype(other)::value;
    auto gradient = gradient_through.template operator()<kOther>(activation);
    if (dadd) {
      gradient.dy = dadd;
      gradient.dy2 = gradient.y = nullptr;
    }
    WithAccess<T>(
        channels, {gradient.dy, gradient.x, gradient.y, dx},
        [&]<int kLength, class Index, bool kSame>(Access<kLength, Index, kSame>, dim3 grid) {
          LaunchIndependent(InputGradient<T, kLength, Index, kSame, kOther>, grid, kThreads, stream,
                            gradient, Factors<S>{factors, channels.count}, dx, size,
                            DivisorOf<Index>(channels.spatial), DivisorOf<Index>(channels.count));
        });
  });
}

size_t BackwardWorkspace(const BatchNormBackwardSpec& spec) {
  return PartialBytes(spec) + static_cast<size_t>(spec.shape[1]) * 6 * sizeof(double);
}

// dy, x, y, dy2 -> dx, dadd
ImageLayouts BackwardLayouts(const BatchNormBackwardSpec& spec) {
  const LayoutPtr image = ImageLayout(spec.x_layout != nullptr, spec.shape, spec.dtype);
  return {{image, image, nullptr, nullptr, nullptr, nullptr, image, image},
          {image, nullptr, nullptr, image}};
}

void RunBackward(const BatchNormBackwardSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() { Backward<T>(spec, execution); });
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterImageKernels<BatchNormBackwardSpec, RunBackward, BackwardLayouts, BackwardWorkspace>();
}

}  // namespace singa::cuda
