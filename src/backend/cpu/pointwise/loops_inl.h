// The loops of loops.h. A file that includes this one has included the header of its `Vectors`
// (vectors_avx2.h), and defines kRegisters.

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cpu/activate_vectors.h"

namespace singa::cpu::pointwise {
namespace {

using Vector = Vectors::Type;
constexpr int kLanes = Vectors::kLanes;

/// Blocks of results of a tile: sums, a vector of each filter and one of a channel of x fill the
/// registers.
constexpr int ResultsOf(int pixels) { return std::clamp(kRegisters / (pixels + 1), 1, 8); }

template <int kPixels>
SINGA_TARGET void ComputeTile(const TileCall& call) {
  constexpr int kResults = ResultsOf(kPixels);
  // Missing blocks are computed like the last one, and not stored.
  const float* w[kResults];
  Vector sums[kResults][kPixels];
#pragma GCC unroll 32
  for (int r = 0; r < kResults; ++r) {
    const int64_t block = std::min<int64_t>(r, call.blocks - 1);
    w[r] = call.w + block * call.w_step;
    const Vector bias = Vectors::Load(call.bias + block * kLanes);
#pragma GCC unroll 32
    for (int p = 0; p < kPixels; ++p) sums[r][p] = bias;
  }
  const float* x = call.x;
  for (int64_t left = call.channels; left > 0; left -= kLanes, x += call.block_step) {
    const int64_t count = std::min<int64_t>(left, kLanes);
    for (int64_t c = 0; c < count; ++c) {
      Vector filters[kResults];
#pragma GCC unroll 32
      for (int r = 0; r < kResults; ++r) {
        __builtin_prefetch(w[r] + call.ahead);
        filters[r] = Vectors::Load(w[r]);
        w[r] += kLanes;
      }
#pragma GCC unroll 32
      for (int p = 0; p < kPixels; ++p) {
        const Vector pixel = Vectors::All(x[p * kLanes + c]);
#pragma GCC unroll 32
        for (int r = 0; r < kResults; ++r)
          sums[r][p] = Vectors::MultiplyAdd(pixel, filters[r], sums[r][p]);
      }
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < kResults; ++r) {
    if (r >= call.blocks) break;
    const bool partial = r + 1 == call.blocks && call.last < kLanes;
    const Vectors::Mask mask = Vectors::First(partial ? call.last : kLanes);
    if (call.add) {
      const float* add = call.add + r * call.y_step;
#pragma GCC unroll 32
      for (int p = 0; p < kPixels; ++p)
        sums[r][p] =
            Vectors::Add(sums[r][p], partial ? Vectors::Load(add + p * call.pixel_step, mask)
                                             : Vectors::Load(add + p * call.pixel_step));
    }
    Activate(call.after, sums[r]);
    float* y = call.y + r * call.y_step;
#pragma GCC unroll 32
    for (int p = 0; p < kPixels; ++p) {
      if (!partial) {
        Vectors::Store(y + p * call.pixel_step, sums[r][p]);
        continue;
      }
      // Sums of zeros that fill up filters are not 0 where x is infinite or NaN.
      if (call.pads) Vectors::Store(y + p * call.pixel_step, Vectors::All(0));
      Vectors::Store(y + p * call.pixel_step, sums[r][p], mask);
    }
  }
}

SINGA_TARGET void CopyRows(const float* from, int64_t step, int64_t pixels, int64_t channels,
                           float* to, int64_t block_step) {
  for (; channels > 0; channels -= kLanes, from += kLanes, to += block_step) {
    if (channels >= kLanes) {
      for (int64_t p = 0; p < pixels; ++p)
        Vectors::Store(to + p * kLanes, Vectors::Load(from + p * step));
    } else {
      const Vectors::Mask mask = Vectors::First(channels);
      for (int64_t p = 0; p < pixels; ++p)
        Vectors::Store(to + p * kLanes, Vectors::Load(from + p * step, mask));
    }
  }
}

constexpr int kMostPixels = kRegisters - 3;

template <int... kBefore>
constexpr std::array<Loop, sizeof...(kBefore)> LoopsOf(std::integer_sequence<int, kBefore...>) {
  return {{{ResultsOf(kBefore + 1), ComputeTile<kBefore + 1>}...}};
}
constexpr auto kTiles = LoopsOf(std::make_integer_sequence<int, kMostPixels>());
constexpr Loops kLoops = {kLanes, kMostPixels, kTiles.data(), CopyRows};

}  // namespace
}  // namespace singa::cpu::pointwise
