// Random numbers and dropout from the Philox sequence: word for word, and so (but for rounding in
// normal numbers) value for value, those of the CPU.

#include "model/formula/random.h"

#include "backend/cudnn/kernels/element.h"
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

template <class T>
__global__ void __launch_bounds__(kThreads)
    Drop(uint64_t seed, uint64_t offset, int64_t size, uint32_t threshold, ComputeType<T> scale,
         const T* x, T* y, uint8_t* mask) {
  using C = ComputeType<T>;
  ForEachWord(seed, offset, size, [&](int64_t i, uint32_t word) {
    const bool keep = word >= threshold;
    y[i] = Cast<T>(keep ? Cast<C>(x[i]) * scale : C(0));
    mask[i] = keep;
  });
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
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    LaunchIndependent(Drop<T>, GridFor(BlocksOf(s.offset, size), kThreads), kThreads,
                      StreamOf(execution.device), s.seed, s.offset, size,
                      static_cast<uint32_t>(s.v[0] * 0x1p32),  // ratio < 1
                      static_cast<ComputeType<T>>(1 / (1 - s.v[0])), execution.in<T>(0),
                      execution.out<T>(0), execution.out<uint8_t>(1));
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

}  // namespace

void RegisterRandom() {
  RegisterKernels<RandomSpec, Run>();
  RegisterKernels<DropoutSpec, RunDropout>();
  RegisterKernels<DropoutBackwardSpec, RunDropoutBackward>();
}

}  // namespace singa::cuda
