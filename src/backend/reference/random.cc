// Random numbers from the Philox sequence.

#include <bit>
#include <cmath>
#include <numbers>

#include "backend/reference/dtype_switch.h"
#include "backend/reference/parallel.h"
#include "backend/reference/philox.h"
#include "backend/reference/register.h"
#include "model/operation/kernel.h"
#include "model/operation/random_spec.h"

namespace singa::reference {

namespace {

// Uniform in [0, 1): all bits that T holds below one, so that rounding never gives one.
template <class T>
double Unit(const uint32_t* words) {
  if constexpr (std::is_same_v<T, double>) {
    const uint64_t bits = static_cast<uint64_t>(words[0]) << 32 | words[1];
    return static_cast<double>(bits >> 11) * 0x1p-53;
  } else {
    constexpr int kBits = std::is_same_v<T, float> ? 24 : std::is_same_v<T, Float16> ? 11 : 8;
    return static_cast<double>(words[0] >> (32 - kBits)) * (1.0 / (uint32_t{1} << kBits));
  }
}

// Uniform in (0, 1), for a logarithm: steps as fine as the words allow, whatever T is.
template <class T>
double OpenUnit(const uint32_t* words) {
  if constexpr (std::is_same_v<T, double>) return Unit<double>(words) + 0x1p-54;
  return (static_cast<double>(words[0]) + 0.5) * 0x1p-32;
}

// The greatest T below `bound`.
template <class T>
T Below(double bound) {
  if constexpr (std::is_floating_point_v<T>) {
    const T rounded = static_cast<T>(bound);
    return rounded < bound ? rounded : std::nextafter(rounded, -std::numeric_limits<T>::infinity());
  } else {
    T value(static_cast<float>(bound));
    if (static_cast<float>(value) < bound) return value;
    const float as_float = static_cast<float>(value);
    if (as_float == 0) {
      value.bits = 0x8001;  // the negative number next to zero
    } else {
      value.bits = static_cast<uint16_t>(as_float > 0 ? value.bits - 1 : value.bits + 1);
    }
    return value;
  }
}

template <class T>
void FillUniform(double low, double high, const uint32_t* words, int64_t n, T* out) {
  using C = ComputeType<T>;
  constexpr int64_t kWords = std::is_same_v<T, double> ? 2 : 1;
  const double width = high - low;
  // Rounding low + u·width to T may reach high, or fall below low.
  const C last = Convert<C>(Below<T>(high));
  const C first = Convert<C>(T(static_cast<C>(low)));
  for (int64_t i = 0; i < n; ++i) {
    const C value = Convert<C>(Convert<T>(low + Unit<T>(words + i * kWords) * width));
    out[i] = Convert<T>(std::max(first, std::min(last, value)));
  }
}

// Box-Muller: words 2j and 2j + 1 give elements 2j and 2j + 1.
template <class T>
void FillGaussian(double mean, double std, const uint32_t* words, int64_t n, T* out) {
  using C = ComputeType<T>;
  constexpr int64_t kWords = std::is_same_v<T, double> ? 2 : 1;
  for (int64_t i = 0; i < n; i += 2) {
    const C radius = std::sqrt(C(-2) * std::log(static_cast<C>(OpenUnit<T>(words + i * kWords))));
    const C angle = static_cast<C>(2 * std::numbers::pi * OpenUnit<T>(words + (i + 1) * kWords));
    out[i] = Convert<T>(static_cast<C>(mean) + static_cast<C>(std) * (radius * std::cos(angle)));
    if (i + 1 < n) {
      out[i + 1] =
          Convert<T>(static_cast<C>(mean) + static_cast<C>(std) * (radius * std::sin(angle)));
    }
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
      // A pair of Box-Muller may need one word more than the last element has.
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

void RegisterRandom() { RegisterReference<RandomSpec, Run>(); }

}  // namespace singa::reference
