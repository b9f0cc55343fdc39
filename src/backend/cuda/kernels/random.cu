// Random numbers and dropout from the Philox sequence. Words are the same as on the CPU, and so are
// values, except for rounding in normal numbers.

#include "model/formula/random.h"

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/common/image_plan.h"
#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/kernels/scalar_argument.h"
#include "model/formula/philox.h"
#include "model/operation/random/spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockWords = 4;  // per call of Philox

/// Calls visit(i, word offset + i of the sequence) for i < size. Each thread takes the words of
/// some blocks. Word 0 may be in the middle of a block (`skip`).
template <class Visit>
__device__ __forceinline__ void ForEachWord(uint64_t seed, uint64_t offset, int64_t size,
                                            const Visit& visit) {
  const int64_t skip = static_cast<int64_t>(offset % kBlockWords);
  const int64_t blocks = (size + skip + kBlockWords - 1) / kBlockWords;
  for (int64_t b = FirstElement(); b < blocks; b += ElementStep()) {
    const uint64_t number = offset / kBlockWords + static_cast<uint64_t>(b);
    const auto words =
        Philox({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0}, seed);
#pragma unroll
    for (int j = 0; j < kBlockWords; ++j) {
      const int64_t i = b * kBlockWords + j - skip;
      if (i >= 0 && i < size) visit(i, words[j]);
    }
  }
}

/// Maximum number of blocks that contain `words` words, wherever they begin. Each is one thread's.
constexpr int64_t MostBlocks(int64_t words) {
  return (words + 2 * (kBlockWords - 1)) / kBlockWords;
}

/// The words of channels-last images, which are in logical order: each plane (image, channel) has
/// one word per pixel, consecutively, beginning anywhere in a block. A thread takes one block of
/// one plane. Neighbouring threads take neighbouring channels, which are contiguous in memory.
template <class Index>
struct ImageWords {
  int64_t pixels;
  int64_t size;  ///< threads
  DivisorOf<Index> channels;
  DivisorOf<Index> blocks;  ///< in which a plane can have words

  explicit ImageWords(const Shape& shape)
      : pixels(shape[2] * shape[3]),
        size(Threads(shape)),
        channels(shape[1]),
        blocks(BlocksOfPlane(shape)) {}
  static int64_t BlocksOfPlane(const Shape& shape) { return MostBlocks(shape[2] * shape[3]); }
  static int64_t Threads(const Shape& shape) { return shape[0] * shape[1] * BlocksOfPlane(shape); }

  /// Calls visit(position in memory, word) for the sequence that begins at `offset`.
  template <class Visit>
  __device__ __forceinline__ void ForEach(uint64_t seed, uint64_t offset,
                                          const Visit& visit) const {
    for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
      const Index row = channels.Divide(static_cast<Index>(i));
      const int64_t channel = static_cast<int64_t>(static_cast<Index>(i) - row * channels.value());
      const Index whole = blocks.Divide(row);
      const auto image = static_cast<int64_t>(whole);
      const uint64_t first =
          offset + static_cast<uint64_t>((image * channels.value() + channel) * pixels);
      const uint64_t number =
          first / kBlockWords + static_cast<uint64_t>(row - whole * blocks.value());
      const auto words =
          Philox({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0, 0}, seed);
#pragma unroll
      for (int j = 0; j < kBlockWords; ++j) {
        const int64_t pixel = static_cast<int64_t>(number * kBlockWords - first) + j;
        if (pixel >= 0 && pixel < pixels)
          visit((image * pixels + pixel) * channels.value() + channel, words[j]);
      }
    }
  }
};

/// Where an operation's words begin in the sequence, and the function that converts them.
template <class F>
struct Drawn {
  uint64_t seed, offset;
  F f;
};

template <class F>
ScalarArgument<Drawn<F>> Draw(const Execution& execution, int64_t skip = 0) {
  return ScalarArgumentOf(execution, [skip](const Scalars& s) {
    return Drawn<F>{s.seed, s.offset + static_cast<uint64_t>(skip), F(s)};
  });
}

template <class T>
struct Uniform {
  formula::UniformRange<T> range;  // [v[0], v[1])
  explicit Uniform(const Scalars& scalars) : range(scalars.v[0], scalars.v[1]) {}
  constexpr T operator()(const uint32_t* words) const { return range(words); }
};

template <class T>
struct Bernoulli {
  uint64_t threshold;  // words below it give 1
  explicit Bernoulli(const Scalars& scalars)
      : threshold(static_cast<uint64_t>(scalars.v[0] * 0x1p32)) {}
  constexpr T operator()(const uint32_t* words) const {
    return Convert<T>(words[0] < threshold ? 1.0f : 0.0f);
  }
};

/// out[i] = f(its word).
template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    FillEach(ScalarArgument<Drawn<F>> argument, int64_t size, T* out) {
  const Drawn<F> drawn = argument.Get();
  ForEachWord(drawn.seed, drawn.offset, size,
              [&](int64_t i, uint32_t word) { out[i] = drawn.f(&word); });
}

/// For float64, an element's two words may be in two blocks. It is rare, so each element simply has
/// a thread.
template <class F>
__global__ void __launch_bounds__(kThreads)
    FillEachDouble(ScalarArgument<Drawn<F>> argument, int64_t size, double* out) {
  const Drawn<F> drawn = argument.Get();
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    RandomWords sequence(drawn.seed, drawn.offset + static_cast<uint64_t>(i) * 2);
    uint32_t words[2];
    for (uint32_t& word : words) word = sequence.Next();
    out[i] = drawn.f(words);
  }
}

struct Normal {
  double mean, std;
  explicit Normal(const Scalars& scalars) : mean(scalars.v[0]), std(scalars.v[1]) {}
};

/// Pairs of normal numbers, each from the words of two elements.
template <class T>
__global__ void __launch_bounds__(kThreads)
    FillGaussian(ScalarArgument<Drawn<Normal>> argument, int64_t size, T* out) {
  const Drawn<Normal> drawn = argument.Get();
  constexpr int kWords = sizeof(T) == 8 ? 2 : 1;
  const int64_t pairs = (size + 1) / 2;
  for (int64_t p = FirstElement(); p < pairs; p += ElementStep()) {
    RandomWords sequence(drawn.seed, drawn.offset + static_cast<uint64_t>(p * 2 * kWords));
    uint32_t words[2 * kWords];
    for (uint32_t& word : words) word = sequence.Next();
    const auto pair = formula::GaussianPair<T>(drawn.f.mean, drawn.f.std, words);
    out[2 * p] = pair[0];
    if (2 * p + 1 < size) out[2 * p + 1] = pair[1];
  }
}

template <class T, class F>
void Fill(const Execution& execution) {
  const int64_t size = execution.outputs[0].size();
  if (size == 0) return;
  const Stream stream = StreamOf(execution.device);
  const ScalarArgument<Drawn<F>> argument = Draw<F>(execution);
  if constexpr (std::is_same_v<T, double>) {
    LaunchIndependent(FillEachDouble<F>, GridFor(size, kThreads), kThreads, stream, argument, size,
                      execution.out<T>(0));
  } else {
    LaunchIndependent(FillEach<T, F>, GridFor(MostBlocks(size), kThreads), kThreads, stream,
                      argument, size, execution.out<T>(0));
  }
}

void Run(const RandomSpec& spec, const Execution& execution) {
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const int64_t size = execution.outputs[0].size();
    switch (spec.kind) {
      case RandomKind::kUniform:
        return Fill<T, Uniform<T>>(execution);
      case RandomKind::kBernoulli:
        return Fill<T, Bernoulli<T>>(execution);
      case RandomKind::kGaussian:
        return LaunchIndependent(FillGaussian<T>, GridFor(size, kThreads, 2), kThreads,
                                 StreamOf(execution.device), Draw<Normal>(execution), size,
                                 execution.out<T>(0));
    }
  });
}

// ---- dropout

/// The fraction of elements to drop, of 2^32, and the factor of the others.
template <class C>
struct Ratio {
  uint32_t threshold;
  C scale;

  explicit Ratio(const Scalars& scalars)
      : threshold(static_cast<uint32_t>(scalars.v[0] * 0x1p32)),  // the ratio is below 1
        scale(static_cast<C>(1 / (1 - scalars.v[0]))) {}
};

/// Applies dropout to an element with its word.
template <class T>
struct Dropping {
  const T* x;
  T* y;
  uint8_t* mask;

  __device__ __forceinline__ void operator()(Ratio<ComputeType<T>> ratio, int64_t i,
                                             uint32_t word) const {
    using C = ComputeType<T>;
    const bool keep = word >= ratio.threshold;
    y[i] = Cast<T>(keep ? Cast<C>(x[i]) * ratio.scale : C(0));
    mask[i] = keep;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    Drop(ScalarArgument<Drawn<Ratio<ComputeType<T>>>> argument, int64_t size,
         Dropping<T> dropping) {
  const auto drawn = argument.Get();
  ForEachWord(drawn.seed, drawn.offset, size,
              [&](int64_t i, uint32_t word) { dropping(drawn.f, i, word); });
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    DropImages(ScalarArgument<Drawn<Ratio<ComputeType<T>>>> argument, ImageWords<Index> words,
               Dropping<T> dropping) {
  const auto drawn = argument.Get();
  words.ForEach(drawn.seed, drawn.offset,
                [&](int64_t i, uint32_t word) { dropping(drawn.f, i, word); });
}

/// In vectors; the rest element by element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    ApplyMask(int64_t size, int64_t vectors, ComputeType<T> scale, const T* dy, const uint8_t* mask,
              T* dx) {
  using C = ComputeType<T>;
  constexpr int kLength = kVectorLength<T>;
  const auto apply = [&](T gradient, uint8_t keep) {
    return Cast<T>(keep ? Cast<C>(gradient) * scale : C(0));
  };
  for (int64_t i = FirstElement(); i < vectors; i += ElementStep()) {
    const auto gradient = LoadVector(dy + i * kLength);
    const auto keep = LoadVector<uint8_t, kLength>(mask + i * kLength);
    Vector<T> out;
#pragma unroll
    for (int j = 0; j < kLength; ++j) out.v[j] = apply(gradient.v[j], keep.v[j]);
    StoreVector(dx + i * kLength, out);
  }
  for (int64_t i = vectors * kLength + FirstElement(); i < size; i += ElementStep())
    dx[i] = apply(dy[i], mask[i]);
}

void RunDropout(const DropoutSpec& spec, const Execution& execution) {
  const int64_t size = execution.inputs[0].size();
  if (size == 0) return;
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const Dropping<T> dropping = {execution.in<T>(0), execution.out<T>(0),
                                  execution.out<uint8_t>(1)};
    const auto argument = Draw<Ratio<ComputeType<T>>>(execution, spec.skip);
    if (!spec.x_layout) {
      LaunchIndependent(Drop<T>, GridFor(MostBlocks(size), kThreads), kThreads, stream, argument,
                        size, dropping);
      return;
    }
    const auto drop = [&]<class Index>(Index) {
      const ImageWords<Index> words(spec.x_layout->shape());
      LaunchIndependent(DropImages<T, Index>, GridFor(words.size, kThreads), kThreads, stream,
                        argument, words, dropping);
    };
    if (FitsIndex32(ImageWords<int64_t>::Threads(spec.x_layout->shape()))) {
      drop(uint32_t{});
    } else {
      drop(int64_t{});
    }
  });
}

void RunDropoutBackward(const DropoutBackwardSpec& spec, const Execution& execution) {
  const int64_t size = execution.inputs[0].size();
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    constexpr int kLength = kVectorLength<T>;
    const T* dy = execution.in<T>(0);
    const auto* mask = execution.in<uint8_t>(1);
    T* dx = execution.out<T>(0);
    const bool fits = IsAligned(dy) && IsAligned(mask, kLength) && IsAligned(dx);
    LaunchIndependent(ApplyMask<T>, GridFor(size, kThreads, fits ? kLength : 1), kThreads,
                      StreamOf(execution.device), size, fits ? size / kLength : 0,
                      Ratio<ComputeType<T>>(execution.scalars).scale, dy, mask, dx);
  });
}

// x -> y, mask
ImageLayouts DropoutLayouts(const DropoutSpec& spec) {
  if (!spec.x_layout) return {};
  return {{spec.x_layout}, {spec.x_layout, cudnn::ChannelsLastOf(spec.x_layout->shape(), kUInt8)}};
}
// dy, mask -> dx
ImageLayouts DropoutBackwardLayouts(const DropoutBackwardSpec& spec) {
  if (!spec.mask_layout) return {};
  const LayoutPtr image = cudnn::ChannelsLastOf(spec.mask_layout->shape(), spec.dtype);
  return {{image, spec.mask_layout}, {image}};
}

}  // namespace

SINGA_KERNELS(cuda) {
  RegisterKernels<RandomSpec, Run>();
  RegisterImageKernels<DropoutSpec, RunDropout, DropoutLayouts>();
  RegisterImageKernels<DropoutBackwardSpec, RunDropoutBackward, DropoutBackwardLayouts>();
}

}  // namespace singa::cuda
