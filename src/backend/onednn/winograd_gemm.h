#pragma once

#include <cstdint>

namespace singa::onednn::winograd {

/// One operand of a product: element (i, j) lies at data[i · row_step + j · column_step].
struct Strided {
  const float* data;
  int64_t row_step;
  int64_t column_step;
};

/// out[r][c] = Σ a(r, i) · b[i · b_step + c] over `depth` values of i, added to out if `add`.
/// `rows` is a multiple of 4, `columns` one of 16; serial. Meant for operands in the caches.
void Multiply(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
              int64_t b_step, float* out, int64_t out_step, bool add);

}  // namespace singa::onednn::winograd
