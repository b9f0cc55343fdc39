#include "backend/cpu/batch_blocked/packing.h"

#include <algorithm>

#include "backend/cpu/vector.h"
#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/tensor/turn.h"

namespace singa::cpu::batch_blocked {
namespace {

using Words __attribute__((vector_size(kSide * sizeof(uint32_t)))) = uint32_t;
using Halves __attribute__((vector_size(kSide * sizeof(uint16_t)))) = uint16_t;
using Floats __attribute__((vector_size(kSide * sizeof(float)))) = float;

/// Loads `count` channels, padded with zeros to 16, into the lower halves of words.
SINGA_INLINE void Load(Words& words, const BFloat16* from, int64_t count) {
  if (count == kSide) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    words = __builtin_convertvector(halves, Words);
  } else {
    words = Words{};
    for (int64_t i = 0; i < count; ++i) words[i] = from[i].bits;
  }
}

/// Row r: images 2r and 2r + 1 of 16 channels, interleaved.
SINGA_INLINE void LoadPairs(const Pixels& from, const BFloat16* pixel, int64_t count,
                            Words (&rows)[kSide]) {
  if (from.images == kDepth && count == kSide) {
#pragma GCC unroll 16
    for (int64_t r = 0; r < kSide; ++r) {
      Words even, odd;
      Load(even, pixel + 2 * r * from.image_step, kSide);
      Load(odd, pixel + (2 * r + 1) * from.image_step, kSide);
      rows[r] = even | odd << 16;
    }
    return;
  }
  for (int64_t r = 0; r < kSide; ++r) {
    Words even = {}, odd = {};
    if (2 * r < from.images) Load(even, pixel + 2 * r * from.image_step, count);
    if (2 * r + 1 < from.images) Load(odd, pixel + (2 * r + 1) * from.image_step, count);
    rows[r] = even | odd << 16;
  }
}

/// Groups of channels whose cache lines are fetched together.
constexpr int64_t kGroups = 4;
/// Distance of the prefetch in pixels. Hardware prefetchers do not follow 32 images at once.
constexpr int64_t kAhead = 1;

SINGA_INLINE void Fetch(const Pixels& from, const BFloat16* pixel, int64_t groups) {
  constexpr int64_t kLine = 64 / sizeof(BFloat16);
  const int64_t step = from.channels_last ? kLine / kSide : 1;
  for (int64_t g = 0; g < groups; g += step)
    for (int64_t n = 0; n < from.images; ++n)
      __builtin_prefetch(pixel + g * from.group_step + n * from.image_step, 0, 2);
}

template <bool kLeft>
SINGA_INLINE void Pack(const Pixels& from, BFloat16* to, int64_t to_step) {
  const int64_t groups = (from.channels + kSide - 1) / kSide;
  for (int64_t column = 0; column < from.columns; ++column) {
    const BFloat16* pixel = from.first + column * from.column_step;
    for (int64_t g = 0; g < groups; ++g) {
      if (g % kGroups == 0)
        Fetch(from, pixel + kAhead * from.column_step + g * from.group_step,
              std::min(kGroups, groups - g));
      const int64_t there = from.channels_last ? std::min(kSide, from.channels - g * kSide) : kSide;
      Words rows[kSide];
      LoadPairs(from, pixel + g * from.group_step, there, rows);
      if constexpr (kLeft) TurnSquare(rows);
      __builtin_memcpy(to + g * to_step + column * kTile, rows, sizeof(rows));
    }
  }
}

/// Rounds 16 values to bfloat16, in the upper halves of words.
SINGA_INLINE void Round(const float* values, Words& rounded) {
  Floats floats;
  __builtin_memcpy(&floats, values, sizeof(floats));
  RoundToBFloat16(floats, rounded);
}

}  // namespace

SINGA_MULTI_ISA void PackLeft(const Pixels& from, BFloat16* to, int64_t to_step) {
  Pack<true>(from, to, to_step);
}

SINGA_MULTI_ISA void PackRight(const Pixels& from, BFloat16* to, int64_t to_step) {
  Pack<false>(from, to, to_step);
}

SINGA_MULTI_ISA void PackImages(const Pixels& from, BFloat16* to, int64_t to_step) {
  const int64_t groups = (from.channels + kSide - 1) / kSide;
  for (int64_t column = 0; column < from.columns; ++column) {
    const BFloat16* pixel = from.first + column * from.column_step;
    for (int64_t g = 0; g < groups + groups % 2; ++g) {
      const int64_t there = g == groups          ? 0
                            : from.channels_last ? std::min(kSide, from.channels - g * kSide)
                                                 : kSide;
      BFloat16* tile = to + g / 2 * to_step + column * kTile + g % 2 * kSide;
      for (int64_t n = 0; n < kSide; ++n) {
        Words words = {};
        if (n < from.images && there > 0)
          Load(words, pixel + g * from.group_step + n * from.image_step, there);
        const auto halves = __builtin_convertvector(words, Halves);
        __builtin_memcpy(&tile[n * kDepth].bits, &halves, sizeof(halves));
      }
    }
  }
}

SINGA_MULTI_ISA void StoreImages(const float* sums, const BFloat16* bias, const Images& images,
                                 BFloat16* to) {
  for (int64_t j = 0; j * kSide < images.channels; ++j) {
    const int64_t there = std::min(kSide, images.channels - j * kSide);
    Floats shift = {};
    for (int64_t c = 0; bias && c < there; ++c) shift[c] = static_cast<float>(bias[j * kSide + c]);
    for (int64_t n = 0; n < images.images; ++n) {
      Floats values;
      __builtin_memcpy(&values, sums + (n / kSide * 2 + j) * kSums + n % kSide * kSide,
                       sizeof(values));
      values += shift;
      Words words;
      RoundToBFloat16(values, words);
      const auto halves = __builtin_convertvector(words >> 16, Halves);
      BFloat16* row = to + j * images.group_step + n * images.image_step;
      if (there == kSide) {
        __builtin_memcpy(&row->bits, &halves, sizeof(halves));
      } else {
        const int64_t all = images.channels_last ? there : kSide;
        for (int64_t c = 0; c < all; ++c) row[c].bits = c < there ? halves[c] : uint16_t{0};
      }
    }
  }
}

SINGA_MULTI_ISA void StoreWeights(const float* sums, int64_t in, int64_t out, BFloat16* to,
                                  int64_t apart) {
  for (int64_t j = 0; j * kSide < out; ++j)
    for (int64_t pair = 0; pair < kSide; ++pair) {
      // Inputs 2 · pair and 2 · pair + 1 are both in the first sixteen rows, or both in the second.
      const float* rows = sums + (pair / 8 * 2 + j) * kSums + pair % 8 * 2 * kSide;
      Words even = {}, odd = {};
      if (2 * pair < in) Round(rows, even);
      if (2 * pair + 1 < in) Round(rows + kSide, odd);
      Words both = even >> 16 | (odd & 0xffff0000u);
      for (int64_t o = out - j * kSide; o < kSide; ++o) both[o] = 0;
      __builtin_memcpy(&to[j * apart + pair * kDepth].bits, &both, sizeof(both));
    }
}

SINGA_MULTI_ISA void Add(int64_t count, const float* from, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace singa::cpu::batch_blocked
