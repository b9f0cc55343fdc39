#pragma once

#include <cstdint>

namespace singa::onednn::winograd {

/// Rows that are multiplied together at best. Two vectors of each, of their sums, of the right hand
/// side and one number of the left have to fit into registers: 32 of AVX-512, 16 of AVX2.
template <int64_t kLanes>
inline constexpr int64_t kTileRows = kLanes == 16 ? 12 : 6;

/// One operand of a product: element (i, j) lies at data[i · row_step + j · column_step].
struct Strided {
  const float* data;
  int64_t row_step;
  int64_t column_step;
};

/// out[r][c] = Σ a(r, i) · b[i · b_step + c] over `depth` values of i, added to out if `add`.
/// kLanes, 8 or 16: channels of a vector. `columns` is a multiple of it, `rows` is a multiple of 4,
/// or of kTileRows<kLanes>; serial. Meant for operands in the caches.
template <int64_t kLanes>
void Multiply(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
              int64_t b_step, float* out, int64_t out_step, bool add);

}  // namespace singa::onednn::winograd
