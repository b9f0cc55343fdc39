#include "backend/cpu/parts_product/packing.h"

#include <algorithm>
#include <bit>

#include "core/device/parallel.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 12, in its own header
#include <immintrin.h>
#endif

namespace singa::cpu::parts_product {

using batch_blocked::kDepth;
using batch_blocked::kSide;
using batch_blocked::kSums;
using batch_blocked::kTile;
using batch_blocked::PartTiles;

namespace {

/// Sets `all` pointers: `count` of them `step` floats apart, the others to zeros.
void SetRuns(const float* first, int64_t step, int64_t count, int64_t all, const float** to) {
  for (int64_t i = 0; i < count; ++i) to[i] = first + i * step;
  for (int64_t i = count; i < all; ++i) to[i] = kZeros;
}

}  // namespace

void Matrix::Locate(int64_t batch, int64_t row, int64_t term, Runs* runs) const {
  const float* data = data_ + batch * batch_step_;
  const int64_t rows = std::min(kPanel, rows_ - row), terms = std::min(kChunk, terms_ - term);
  const int64_t length = along() ? terms : rows, all = along() ? kPanel : kChunk;
  data += along() ? row * step_ + term : term * step_ + row;
  for (int64_t r = 0; r * kRun < (along() ? kChunk : kPanel); ++r) {
    runs->length[r] = std::clamp<int64_t>(length - r * kRun, 0, kRun);
    const int64_t count = runs->length[r] > 0 ? (along() ? rows : terms) : 0;
    SetRuns(data + r * kRun, step_, count, all, runs->at + r * all);
  }
}

namespace {

float Element(const Runs& runs, bool along, int64_t row, int64_t term) {
  const int64_t r = along ? term / kRun : row / kRun, in = along ? term % kRun : row % kRun;
  return in < runs.length[r] ? runs.at[along ? r * kPanel + row : r * kChunk + term][in] : 0;
}

/// The nearest bfloat16 number. The larger one of two that are as near. NaN may become a number.
float Rounded(float value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x8000) & 0xffff0000);
}

uint32_t PackPlain(int64_t parts, Side side, bool along, const Runs& runs, int64_t steps,
                   BFloat16* to) {
  uint32_t largest = 0;
  for (int64_t term = 0; term < steps * kDepth; ++term)
    for (int64_t row = 0; row < kPanel; ++row) {
      float rest = Element(runs, along, row, term);
      largest = std::max(largest, std::bit_cast<uint32_t>(rest) & 0x7fffffff);
      const int64_t in = row % kSide, pair = term % kSide, half = term % kDepth / kSide;
      const int64_t place =
          (side == Side::kLeft ? in * kSide + pair : pair * kSide + in) * 2 + half;
      for (int64_t part = 0; part < parts; ++part) {
        const float rounded = Rounded(rest);
        to[term / kDepth * PartTiles(parts) + (2 * part + row / kSide) * kTile + place].bits =
            static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded) >> 16);
        rest -= rounded;
      }
    }
  return largest;
}

#if defined(__x86_64__)

#define SINGA_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define SINGA_TARGET_INLINE SINGA_TARGET inline __attribute__((always_inline))

template <int64_t kParts>
struct Parts {
  __m512i part[kParts];
};

SINGA_TARGET_INLINE __m512 Rounded(__m512 values) {
  const __m512i bits = _mm512_add_epi32(_mm512_castps_si512(values), _mm512_set1_epi32(0x8000));
  return _mm512_castsi512_ps(_mm512_and_si512(bits, _mm512_set1_epi32(~0xffff)));
}

/// The parts of 32 numbers, in pairs of one of `low` and one of `high`.
template <int64_t kParts>
SINGA_TARGET_INLINE Parts<kParts> Split(__m512 low, __m512 high) {
  constexpr __mmask32 kOdd = 0xaaaaaaaa;
  Parts<kParts> parts;
#pragma GCC unroll 3
  for (int64_t p = 0; p < kParts; ++p) {
    const __m512 even = Rounded(low), odd = Rounded(high);
    parts.part[p] = _mm512_mask_blend_epi16(kOdd, _mm512_srli_epi32(_mm512_castps_si512(even), 16),
                                            _mm512_castps_si512(odd));
    low = _mm512_sub_ps(low, even);
    high = _mm512_sub_ps(high, odd);
  }
  return parts;
}

/// Transposes 16 x 16 words.
SINGA_TARGET_INLINE void Transpose(__m512i* rows) {
  __m512i t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4)
#pragma GCC unroll 2
    for (int j = 0; j < 2; ++j) {
      rows[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
      rows[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
    }
    // rows[4 q + c] has column c of each lane of four, of rows 4 q to 4 q + 3.
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const __m512i low = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x88),
                  high = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xdd),
                  low2 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x88),
                  high2 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xdd);
    t[c] = _mm512_shuffle_i32x4(low, low2, 0x88);
    t[8 + c] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    t[4 + c] = _mm512_shuffle_i32x4(high, high2, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

/// Packs one step. A vector of pairs is a row of a tile, or with `transposed` a column.
template <int64_t kParts, bool along, bool transposed, bool whole>
SINGA_TARGET_INLINE __m512i PackStep(const Runs& runs, int64_t step, BFloat16* to, __m512i largest,
                                     const Runs& next) {
  const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
  for (int64_t tile = 0; tile < 2; ++tile) {
    // Vector i has the terms of row i, or the rows of terms i and 16 + i.
    constexpr int64_t kApart = along ? kPanel : kSide;
    const int64_t place = along ? 2 * step * kPanel + tile * kSide : tile * kChunk + step * kDepth;
    const float* const* at = runs.at + place;
    const float* const* then = next.at + place;
    const auto mask = [&](int64_t run) {
      return static_cast<__mmask16>((1u << runs.length[run]) - 1);
    };
    const __mmask16 first = mask(along ? 2 * step : tile),
                    second = mask(along ? 2 * step + 1 : tile);
    __m512i kept[kParts][kSide];
    BFloat16* row = to + tile * kTile;
#pragma GCC unroll 4
    for (int64_t i = 0; i < kSide; ++i) {
      _mm_prefetch(then[i], _MM_HINT_T0);
      _mm_prefetch(then[i + kApart], _MM_HINT_T0);
      const __m512 low = whole ? _mm512_loadu_ps(at[i]) : _mm512_maskz_loadu_ps(first, at[i]),
                   high = whole ? _mm512_loadu_ps(at[i + kApart])
                                : _mm512_maskz_loadu_ps(second, at[i + kApart]);
      largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(low), magnitude));
      largest = _mm512_max_epu32(largest, _mm512_and_si512(_mm512_castps_si512(high), magnitude));
      const Parts<kParts> parts = Split<kParts>(low, high);
#pragma GCC unroll 3
      for (int64_t p = 0; p < kParts; ++p) {
        if constexpr (transposed)
          kept[p][i] = parts.part[p];
        else
          _mm512_store_si512(row + 2 * p * kTile + i * kDepth, parts.part[p]);
      }
    }
    if constexpr (transposed)
      for (int64_t p = 0; p < kParts; ++p) {
        Transpose(kept[p]);
#pragma GCC unroll 16
        for (int64_t i = 0; i < kSide; ++i)
          _mm512_store_si512(row + 2 * p * kTile + i * kDepth, kept[p][i]);
      }
  }
  return largest;
}

template <int64_t kParts, bool along, bool transposed>
SINGA_TARGET uint32_t PackVectors(const Runs& runs, int64_t steps, BFloat16* to, const Runs& next) {
  __m512i largest = _mm512_setzero_si512();
  const int64_t last = along ? 2 * steps : 2;
  const bool whole =
      std::all_of(runs.length, runs.length + last, [](int64_t length) { return length == kRun; });
  for (int64_t step = 0; step < steps; ++step, to += PartTiles(kParts))
    largest = whole ? PackStep<kParts, along, transposed, true>(runs, step, to, largest, next)
                    : PackStep<kParts, along, transposed, false>(runs, step, to, largest, next);
  alignas(64) uint32_t lanes[16];
  _mm512_store_si512(lanes, largest);
  return *std::max_element(lanes, lanes + 16);
}

#endif

SINGA_MULTI_ISA void AddProducts(const float* left, const float* right, int64_t terms,
                                 float* sums) {
  for (int64_t k = 0; k < terms; ++k)
    for (int64_t i = 0; i < kPanel; ++i) {
      const float factor = left[k * kPanel + i];
      for (int64_t j = 0; j < kPanel; ++j) sums[i * kPanel + j] += factor * right[k * kPanel + j];
    }
}

}  // namespace

uint32_t Pack(const PartsUnit& by, Side side, bool along, const Runs& runs, int64_t steps,
              BFloat16* to, const Runs& next) {
#if defined(__x86_64__)
  if (by.unit == Unit::kAmx) {
    const bool transposed = along == (side == Side::kRight);
    return batch_blocked::WithParts(
        by.parts, [&]<int64_t kParts>(std::integral_constant<int64_t, kParts>) {
          if (transposed)
            return (along ? PackVectors<kParts, true, true>
                          : PackVectors<kParts, false, true>)(runs, steps, to, next);
          return (along ? PackVectors<kParts, true, false>
                        : PackVectors<kParts, false, false>)(runs, steps, to, next);
        });
  }
#endif
  (void)next;
  return PackPlain(by.parts, side, along, runs, steps, to);
}

bool HasParts(uint32_t left, uint32_t right) {
  const auto exponent = [](uint32_t bits) { return static_cast<int>(bits >> 23) - 127; };
  constexpr int kLargest = 126, kSmallest = -90;
  for (const uint32_t bits : {left, right})
    if (bits != 0 && (exponent(bits) > kLargest || exponent(bits) < kSmallest)) return false;
  if (left == 0 || right == 0) return true;
  // A chunk's sum is below 128 · 4 times the product of the powers of two.
  const int product = exponent(left) + exponent(right);
  return product <= kLargest - 10 && product >= kSmallest;
}

void MultiplyPlainly(const Runs& left, bool left_along, const Runs& right, bool right_along,
                     int64_t steps, float* sums) {
  float a[kChunk * kPanel], b[kChunk * kPanel], rows[kPanelSums] = {};
  const int64_t terms = steps * kDepth;
  for (int64_t k = 0; k < terms; ++k)
    for (int64_t i = 0; i < kPanel; ++i) {
      a[k * kPanel + i] = Element(left, left_along, i, k);
      b[k * kPanel + i] = Element(right, right_along, i, k);
    }
  AddProducts(a, b, terms, rows);
  for (int64_t i = 0; i < kPanel; ++i)
    for (int64_t j = 0; j < kPanel; ++j)
      sums[(2 * (i / kSide) + j / kSide) * kSums + i % kSide * kSide + j % kSide] =
          rows[i * kPanel + j];
}

}  // namespace singa::cpu::parts_product
