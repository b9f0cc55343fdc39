#pragma once

// Gradients of weights and biases: sums over all steps and sequences.

#include "backend/cpu/rnn/panels.h"

namespace singa::cpu::rnn {

/// Rows that lie in two places, one behind the other.
struct TwoParts {
  const float* first;
  int64_t first_rows;
  const float* second;
};

/// Packs `rows` rows of panels.width() columns or fewer, on all threads.
void PackRows(const TwoParts& from, int64_t rows, int64_t row_step, const Panels& panels,
              float* packed);

/// dw (columns x panels, `dw_step` apart) = Σ a(row, column) · packed(row), on all threads.
void SumProducts(const float* a, int64_t a_step, int64_t columns, int64_t rows,
                 const Panels& panels, const float* packed, float* dw, int64_t dw_step);

/// sums[j] = Σ a(row, j), on all threads.
void SumRows(const float* a, int64_t a_step, int64_t columns, int64_t rows, float* sums);

}  // namespace singa::cpu::rnn
