// Random numbers and dropout from the Philox sequence: word for word, and so (but for rounding in
// normal numbers) value for value, those of the CPU.

#include "model/formula/random.h"

#include "backend/cudnn/kernels/element.h"
#include "backend/cudnn/kernels/geometry.h"
#include "backend/cudnn/kernels/image_plan.h"
#include "backend/cudnn/kernels/register.h"
#include "model/formula/philox.h"
#include "model/operation/random_spec.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlockWords = 4;  // of one call of Philox

/// Calls visit(i, word offset + i of the sequence) for i < size, in this thread for the words of
/// some of its blocks: word 0 may be in the middle of one (`skip`).
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

/// Images that lie channels-last, whose words are in logical order: each plane (image, channel) has
/// so many in a row as it has pixels, which begin anywhere in a block. A thread takes one block of
/// one plane, and neighbouring threads neighbouring channels, which lie side by side.
template <class Index>
struct ImageWords {
  int64_t pixels;
  int64_t size;  ///< threads
  DivisorOf<Index> channels;
  DivisorOf<Index> blocks;  ///< that a plane can have words in

  explicit ImageWords(const Shape& shape)
      : pixels(shape[2] * shape[3]),
        size(Threads(shape)),
        channels(shape[1]),
        blocks(BlocksOfPlane(shape)) {}
  static int64_t BlocksOfPlane(const Shape& shape) {
    return (shape[2] * shape[3] + 2 * (kBlockWords - 1)) / kBlockWords;
  }
  static int64_t Threads(const Shape& shape) { return shape[0] * shape[1] * BlocksOfPlane(shape); }

  /// Calls visit(place in memory, word of the sequence that begins at `offset`).
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

/// Threads that make words [offset, offset + words).
int64_t BlocksOf(uint64_t offset, int64_t words) {
  return static_cast<int64_t>((offset + static_cast<uint64_t>(words) + kBlockWords - 1) /
                                  kBlockWords -
                              offset / kBlockWords);
}

template <class T>
struct Uniform {
  formula::UniformRange<T> range;
  constexpr T operator()(const uint32_t* words) const { return range(words); }
};

template <class T>
struct Bernoulli {
  uint64_t threshold;
  constexpr T operator()(const uint32_t* words) const {
    return Convert<T>(words[0] < threshold ? 1.0f : 0.0f);
  }
};

/// out[i] = f(its word).
template <class T, class F>
__global__ void __launch_bounds__(kThreads)
    FillEach(uint64_t seed, uint64_t offset, int64_t size, T* out, F f) {
  ForEachWord(seed, offset, size, [&](int64_t i, uint32_t word) { out[i] = f(&word); });
}

/// Of float64, whose two words may lie in two blocks: rare, so simply one thread for each.
template <class F>
__global__ void __launch_bounds__(kThreads)
    FillEachDouble(uint64_t seed, uint64_t offset, int64_t size, double* out, F f) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    RandomWords sequence(seed, offset + static_cast<uint64_t>(i) * 2);
    uint32_t words[2];
    for (uint32_t& word : words) word = sequence.Next();
    out[i] = f(words);
  }
}

/// Pairs of normal numbers, from the words of two elements each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    FillGaussian(uint64_t seed, uint64_t offset, int64_t size, T* out, double mean, double std) {
  constexpr int kWords = sizeof(T) == 8 ? 2 : 1;
  const int64_t pairs = (size + 1) / 2;
  for (int64_t p = FirstElement(); p < pairs; p += ElementStep()) {
    RandomWords sequence(seed, offset + static_cast<uint64_t>(p * 2 * kWords));
    uint32_t words[2 * kWords];
    for (uint32_t& word : words) word = sequence.Next();
    const auto pair = formula::GaussianPair<T>(mean, std, words);
    out[2 * p] = pair[0];
    if (2 * p + 1 < size) out[2 * p + 1] = pair[1];
  }
}

template <class T, class F>
void Fill(const Execution& execution, const F& f) {
  const Scalars& s = execution.scalars;
  const int64_t size = execution.outputs[0].size();
  if (size == 0) return;
  const Stream stream = StreamOf(execution.device);
  if constexpr (std::is_same_v<T, double>) {
    LaunchIndependent(FillEachDouble<F>, GridFor(size, kThreads), kThreads, stream, s.seed,
                      s.offset, size, execution.out<T>(0), f);
  } else {
    LaunchIndependent(FillEach<T, F>, GridFor(BlocksOf(s.offset, size), kThreads), kThreads, stream,
                      s.seed, s.offset, size, execution.out<T>(0), f);
  }
}

void Run(const RandomSpec& spec, const Execution& execution) {
  const Scalars& s = execution.scalars;
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const int64_t size = execution.outputs[0].size();
    switch (spec.kind) {
      case RandomKind::kUniform:
        return Fill<T>(execution, Uniform<T>{formula::UniformRange<T>(s.v[0], s.v[1])});
      case RandomKind::kBernoulli:
        return Fill<T>(execution, Bernoulli<T>{static_cast<uint64_t>(s.v[0] * 0x1p32)});
      case RandomKind::kGaussian:
        return LaunchIndependent(FillGaussian<T>, GridFor(size, kThreads, 2), kThreads,
                                 StreamOf(execution.device), s.seed, s.offset, size,
                                 execution.out<T>(0), s.v[0], s.v[1]);
    }
  });
}

// ---- dropout

/// What becomes of an element and its word.
template <class T>
struct Dropping {
  uint32_t threshold;
  ComputeType<T> scale;
  const T* x;
  T* y;
  uint8_t* mask;

  __device__ __forceinline__ void operator()(int64_t i, uint32_t word) const {
    using C = ComputeType<T>;
    const bool keep = word >= threshold;
    y[i] = Cast<T>(keep ? Cast<C>(x[i]) * scale : C(0));
    mask[i] = keep;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    Drop(uint64_t seed, uint64_t offset, int64_t size, Dropping<T> dropping) {
  ForEachWord(seed, offset, size, dropping);
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    DropImages(uint64_t seed, uint64_t offset, ImageWords<Index> words, Dropping<T> dropping) {
  words.ForEach(seed, offset, dropping);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    ApplyMask(int64_t size, ComputeType<T> scale, const T* dy, const uint8_t* mask, T* dx) {
  using C = ComputeType<T>;
  for (int64_t i = FirstElement(); i < size; i += ElementStep())
    dx[i] = Cast<T>(mask[i] ? Cast<C>(dy[i]) * scale : C(0));
}

void RunDropout(const DropoutSpec& spec, const Execution& execution) {
  const Scalars& s = execution.scalars;
  const int64_t size = execution.inputs[0].size();
  if (size == 0) return;
  const Stream stream = StreamOf(execution.device);
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    const Dropping<T> dropping = {static_cast<uint32_t>(s.v[0] * 0x1p32),  // ratio < 1
                                  static_cast<ComputeType<T>>(1 / (1 - s.v[0])), execution.in<T>(0),
                                  execution.out<T>(0), execution.out<uint8_t>(1)};
    if (!spec.x_layout) {
      LaunchIndependent(Drop<T>, GridFor(BlocksOf(s.offset, size), kThreads), kThreads, stream,
                        s.seed, s.offset, size, dropping);
      return;
    }
    const auto drop = [&]<class Index>(Index) {
      const ImageWords<Index> words(spec.x_layout->shape());
      LaunchIndependent(DropImages<T, Index>, GridFor(words.size, kThreads), kThreads, stream,
                        s.seed, s.offset, words, dropping);
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
    LaunchIndependent(ApplyMask<T>, GridFor(size, kThreads), kThreads, StreamOf(execution.device),
                      size, static_cast<ComputeType<T>>(1 / (1 - execution.scalars.v[0])),
                      execution.in<T>(0), execution.in<uint8_t>(1), execution.out<T>(0));
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

void RegisterRandom() {
  RegisterKernels<RandomSpec, Run>();
  RegisterImageKernels<DropoutSpec, RunDropout, DropoutLayouts>();
  RegisterImageKernels<DropoutBackwardSpec, RunDropoutBackward, DropoutBackwardLayouts>();
}

}  // namespace singa::cuda
