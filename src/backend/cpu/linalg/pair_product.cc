#include "backend/cpu/linalg/pair_product.h"

#include <array>
#include <bit>

#include "core/device/inline.h"
#include "core/device/instruction_set.h"
#include "singa/core/half.h"

#if defined(__x86_64__)
#include <immintrin.h>
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // of GCC 12, in its own header
#endif

namespace singa::cpu {
namespace {

constexpr int64_t kLanes = 16;

float Low(uint32_t word) { return std::bit_cast<float>(word << 16); }
float High(uint32_t word) { return std::bit_cast<float>(word & 0xffff0000u); }

void MultiplyPlain(int64_t rows, int64_t columns, int64_t pairs, const PairRows& left,
                   const PairPanels& right, const PairSums& sums) {
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      float sum = 0;
      for (int64_t i = 0; i < pairs; ++i) {
        const uint32_t a = left.data[r * left.row_step + i * left.pair_step];
        const uint32_t b =
            right.data[c / kLanes * right.panel_step + i * right.pair_step + c % kLanes];
        sum += High(a) * High(b);
        sum += Low(a) * Low(b);
      }
      float& to = sums.data[r * sums.row_step + c / kLanes * sums.panel_step + c % kLanes];
      to = sums.factor * sum + (sums.add ? to : 0.0f);
    }
}

uint32_t Word(float low, float high) {
  return uint32_t{BFloat16(low).bits} | uint32_t{BFloat16(high).bits} << 16;
}

void JoinPlain(const BFloat16* from, int64_t row_step, int64_t rows, uint32_t* to) {
  for (int64_t r = 0; r < rows; r += 2, from += 2 * row_step, to += kLanes)
    for (int64_t c = 0; c < kLanes; ++c)
      to[c] =
          uint32_t{from[c].bits} | (r + 1 < rows ? uint32_t{from[row_step + c].bits} << 16 : 0u);
}

void RoundPlain(const float* x, int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n; i += 2) to[i / 2] = Word(x[i], x[i + 1]);
}

void RoundRowsPlain(const float* x, int64_t rows, int64_t columns, uint32_t* to) {
  for (int64_t r = 0; r < rows; r += 2)
    for (int64_t c = 0; c < columns; ++c)
      to[r / 2 * columns + c] =
          Word(x[r * columns + c], r + 1 < rows ? x[(r + 1) * columns + c] : 0.0f);
}

#if defined(__x86_64__)

#define SINGA_TARGET __attribute__((target("avx512f,avx512bw,avx512bf16")))

/// Computes R x 16·J results in registers.
template <int R, int J>
SINGA_TARGET void MultiplyTile(int64_t pairs, const PairRows& left, const PairPanels& right,
                               const PairSums& out) {
  __m512 sums[R][J];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int j = 0; j < J; ++j) sums[r][j] = _mm512_setzero_ps();
  // There are few registers for many rows, so a pointer serves four.
  const uint32_t *from[R / 4], *b = right.data;
  for (int r = 0; r < R; r += 4) from[r / 4] = left.data + r * left.row_step;
  for (int64_t i = 0; i < pairs; ++i) {
    __m512bh factors[J];
#pragma GCC unroll 2
    for (int j = 0; j < J; ++j) factors[j] = (__m512bh)_mm512_loadu_si512(b + j * right.panel_step);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const uint32_t word = from[r / 4][(r % 4) * left.row_step];
      const auto factor = (__m512bh)_mm512_set1_epi32(static_cast<int>(word));
#pragma GCC unroll 2
      for (int j = 0; j < J; ++j) sums[r][j] = _mm512_dpbf16_ps(sums[r][j], factor, factors[j]);
    }
#pragma GCC unroll 3
    for (int r = 0; r < R / 4; ++r) from[r] += left.pair_step;
    b += right.pair_step;
  }
  const __m512 factor = _mm512_set1_ps(out.factor);
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int j = 0; j < J; ++j) {
      float* to = out.data + r * out.row_step + j * out.panel_step;
      _mm512_storeu_ps(to, out.add ? _mm512_fmadd_ps(factor, sums[r][j], _mm512_loadu_ps(to))
                                   : _mm512_mul_ps(factor, sums[r][j]));
    }
}

template <int R>
void MultiplyRows(int64_t rows, int64_t columns, int64_t pairs, PairRows left,
                  const PairPanels& right, PairSums sums) {
  for (; rows > 0; rows -= R, left.data += R * left.row_step, sums.data += R * sums.row_step) {
    PairPanels b = right;
    PairSums to = sums;
    int64_t c = 0;
    for (; c + 2 * kLanes <= columns; c += 2 * kLanes) {
      MultiplyTile<R, 2>(pairs, left, b, to);
      b.data += 2 * right.panel_step;
      to.data += 2 * sums.panel_step;
    }
    if (c < columns) MultiplyTile<R, 1>(pairs, left, b, to);
  }
}

void MultiplyAvx512(int64_t rows, int64_t columns, int64_t pairs, const PairRows& left,
                    const PairPanels& right, const PairSums& sums) {
  // Twelve rows at a time; what is left as one or two tiles of eight, or as four rows.
  const int64_t rest = rows % 12 == 4 && rows > 4 ? 16 : rows % 12, most = rows - rest;
  const auto from = [&](int64_t row) -> PairRows {
    return {left.data + row * left.row_step, left.row_step, left.pair_step};
  };
  const auto to = [&](int64_t row) {
    PairSums moved = sums;
    moved.data += row * sums.row_step;
    return moved;
  };
  MultiplyRows<12>(most, columns, pairs, left, right, sums);
  if (rest == 4) {
    MultiplyRows<4>(rest, columns, pairs, from(most), right, to(most));
  } else {
    MultiplyRows<8>(rest, columns, pairs, from(most), right, to(most));
  }
}

/// Where the numbers of two rows of 16 go in words of both.
alignas(64) constexpr auto kPlaces = [] {
  std::array<uint16_t, 2 * kLanes> places{};
  for (size_t i = 0; i < kLanes; ++i) {
    places[2 * i] = static_cast<uint16_t>(i);
    places[2 * i + 1] = static_cast<uint16_t>(kLanes + i);
  }
  return places;
}();

SINGA_TARGET __m256i Row(const BFloat16* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

SINGA_TARGET void JoinAvx512(const BFloat16* from, int64_t row_step, int64_t rows, uint32_t* to) {
  const __m512i places = _mm512_load_si512(kPlaces.data());
  for (; rows > 1; rows -= 2, from += 2 * row_step, to += kLanes) {
    const __m512i both = row_step == kLanes ? _mm512_loadu_si512(from)
                                            : _mm512_inserti64x4(_mm512_castsi256_si512(Row(from)),
                                                                 Row(from + row_step), 1);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi16(places, both));
  }
  if (rows == 1) _mm512_storeu_si512(to, _mm512_cvtepu16_epi32(Row(from)));
}

SINGA_TARGET void RoundAvx512(const float* x, int64_t n, uint32_t* to) {
  for (int64_t i = 0; i < n; i += 2 * kLanes) {
    const __m512bh both =
        _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + i + kLanes), _mm512_loadu_ps(x + i));
    _mm512_storeu_si512(to + i / 2, (__m512i)both);
  }
}

SINGA_TARGET void RoundRowsAvx512(const float* x, int64_t rows, int64_t columns, uint32_t* to) {
  const __m512i places = _mm512_load_si512(kPlaces.data());
  for (int64_t r = 0; r < rows; r += 2, x += 2 * columns, to += columns)
    for (int64_t c = 0; c < columns; c += kLanes) {
      const __m512 next = r + 1 < rows ? _mm512_loadu_ps(x + columns + c) : _mm512_setzero_ps();
      const __m512bh both = _mm512_cvtne2ps_pbh(next, _mm512_loadu_ps(x + c));
      _mm512_storeu_si512(to + c, _mm512_permutexvar_epi16(places, (__m512i)both));
    }
}

#endif

}  // namespace

const PairLoops& PlainPairLoops() {
  static constexpr PairLoops kLoops = {MultiplyPlain, JoinPlain, RoundPlain, RoundRowsPlain};
  return kLoops;
}

const PairLoops* Avx512PairLoops() {
#if defined(__x86_64__)
  static constexpr PairLoops kLoops = {MultiplyAvx512, JoinAvx512, RoundAvx512, RoundRowsAvx512};
  if (AllowedInstructionSet() >= InstructionSet::kAvx512Bf16) return &kLoops;
#endif
  return nullptr;
}

}  // namespace singa::cpu
