#pragma once

#include <algorithm>
#include <cstdint>

#include "core/tensor/round_up.h"

namespace singa::cpu {

/// Rows of a register block. The sums (two vectors per row), two vectors of the right operand and
/// one element of the left must fit in registers: 32 with AVX-512, 16 with AVX2, and with NEON 32,
/// of which two hold a vector.
template <int64_t kLanes>
inline constexpr int64_t kTileRows = kLanes == 16 ? 12 : 6;

/// The rows of a product that has at least `count`.
template <int64_t kLanes>
constexpr int64_t RowsFor(int64_t count) {
  return std::min(RoundUp(count, int64_t{4}), RoundUp(count, kTileRows<kLanes>));
}

/// An operand of a product: element (i, j) is at data[i · row_step + j · column_step].
struct Strided {
  const float* data;
  int64_t row_step;
  int64_t column_step;
};

/// out[r][c] = Σ a(r, i) · b[i · b_step + c] over `depth` values of i, added to out if `add`.
/// kLanes (8 or 16) is the vector width; `columns` is a multiple of it. `rows` is a multiple of 4
/// or of kTileRows<kLanes>. Runs on the calling thread. Operands should be in the caches.
template <int64_t kLanes>
void Multiply(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
              int64_t b_step, float* out, int64_t out_step, bool add);

/// Goes on with the sums that are in out: a product in pieces of its depth has the bits of the
/// whole one.
template <int64_t kLanes>
void MultiplyOn(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
                int64_t b_step, float* out, int64_t out_step);

}  // namespace singa::cpu
