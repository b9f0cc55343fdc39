// Random numbers from the Philox sequence.

#include <bit>
#include <cmath>
#include <numbers>

#include "core/device/parallel.h"
#include "core/tensor/dtype_switch.h"
#include "model/dispatch/kernel.h"
#include "model/formula/philox_fill.h"
#include "model/formula/random.h"
#include "model/operation/random/spec.h"

namespace singa::reference {

namespace {

template <class T>
void FillUniform(double low, double high, const uint32_t* words, int64_t n, T* out) {
  constexpr int64_t kWords = std::is_same_v<T, double> ? 2 : 1;
  const formula::UniformRange<T> range(low, high);
  for (int64_t i = 0; i < n; ++i) out[i] = range(words + i * kWords);
}

// Words 2j and 2j + 1 determine elements 2j and 2j + 1.
template <class T>
void FillGaussian(double mean, double std, const uint32_t* words, int64_t n, T* out) {
  constexpr int64_t kWords = std::is_same_v<T, double> ? 2 : 1;
  for (int64_t i = 0; i < n; i += 2) {
    const auto pair = formula::GaussianPair<T>(mean, std, words + i * kWords);
    out[i] = pair[0];
    if (i + 1 < n) out[i + 1] = pair[1];
  }
}

template <class T>
void FillBernoulli(double p, const uint32_t* words, int64_t n, T* out) {
  constexpr int64_t kWords = std::is_same_v<T, double> ? 2 : 1;
  const auto threshold = static_cast<uint64_t>(p * 0x1p32);
  const T zero = Convert<T>(0.0f), one = Convert<T>(1.0f);
  for (int64_t i = 0; i < n; ++i) out[i] = words[i * kWords] < threshold ? one : zero;
}

void Run(const RandomSpec& spec, const Execution& execution) {
  const Scalars& s = execution.scalars;
  const int64_t n = execution.outputs[0].size();
  SwitchFloat(spec.dtype, spec.op(), [&]<class T>() {
    constexpr int64_t kWords = std::is_same_v<T, double> ? 2 : 1;
    T* out = execution.out<T>(0);
    const int64_t chunks = (n + kRandomChunk - 1) / kRandomChunk;
    ParallelFor(chunks, kParallelGrain / 8 / kRandomChunk, [&](int64_t begin, int64_t end) {
      // The last Box-Muller pair may need one more word than there are elements.
      uint32_t words[kRandomChunk * kWords + 2];
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t at = chunk * kRandomChunk;
        const int64_t count = std::min(kRandomChunk, n - at);
        PhiloxFill(s.seed, s.offset + static_cast<uint64_t>(at * kWords), (count + 1) * kWords,
                   words);
        switch (spec.kind) {
          case RandomKind::kUniform:
            FillUniform<T>(s.v[0], s.v[1], words, count, out + at);
            break;
          case RandomKind::kGaussian:
            FillGaussian<T>(s.v[0], s.v[1], words, count, out + at);
            break;
          case RandomKind::kBernoulli:
            FillBernoulli<T>(s.v[0], words, count, out + at);
            break;
        }
      }
    });
  });
}

}  // namespace

SINGA_KERNELS(reference) { RegisterReference<RandomSpec, Run>(); }

}  // namespace singa::reference
