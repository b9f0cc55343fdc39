#pragma once

// Products of bfloat16 numbers, added in float32. Terms of a sum come in pairs: a word holds terms
// 2i, in its lower half, and 2i + 1.

#include <cstdint>

#include "singa/core/half.h"

namespace singa::cpu {

/// Left factor: pair i of row r is at data[r · row_step + i · pair_step].
struct PairRows {
  const uint32_t* data;
  int64_t row_step, pair_step;
};
/// Right factor: pair i of column c is at data[c / 16 · panel_step + i · pair_step + c % 16].
struct PairPanels {
  const uint32_t* data;
  int64_t panel_step, pair_step;
};
/// Sums: factor · product, added to data[r · row_step + c / 16 · panel_step + c % 16] if `add`,
/// else stored there.
struct PairSums {
  float* data;
  int64_t row_step, panel_step;
  float factor;
  bool add;
};

struct PairLoops {
  /// `rows` is a multiple of 4, `columns` of 16. Operands should be in the caches.
  void (*multiply)(int64_t rows, int64_t columns, int64_t pairs, const PairRows& left,
                   const PairPanels& right, const PairSums& sums);
  /// Words of a row of 16 numbers and the next one: to[r / 2 · 16 + c]. A missing last row is zero.
  void (*join)(const BFloat16* from, int64_t row_step, int64_t rows, uint32_t* to);
  /// Rounds n numbers, a multiple of 32, to n / 2 words of neighbours.
  void (*round)(const float* x, int64_t n, uint32_t* to);
  /// Rounds rows x columns numbers to words of a row and the next one: to[r / 2 · columns + c]. A
  /// missing last row is zero. `columns` is a multiple of 16.
  void (*round_rows)(const float* x, int64_t rows, int64_t columns, uint32_t* to);
};

/// Loops for any processor, with float32 products.
const PairLoops& PlainPairLoops();
/// AVX-512's instructions for bfloat16, which read denormal numbers as zeros. Null where this CPU
/// lacks them.
const PairLoops* Avx512PairLoops();

}  // namespace singa::cpu
