#pragma once

// Products with few or many rows and a packed right operand, for recurrent networks.

#include <cstdint>

#include "backend/cpu/linalg/tile_product.h"

namespace singa::cpu::rnn {

/// Vectors of results that a panel of the right operand gives for each row, at most.
inline constexpr int64_t kMostVectors = 4;

/// Places of a panel's results.
struct Target {
  float* data;  ///< of the first row
  int64_t row_step;
  int64_t place[kMostVectors];  ///< of each vector in the row
  int64_t count[kMostVectors];  ///< its elements that are wanted
  bool add[kMostVectors];       ///< to what is there
};

/// Results (rows x vectors·lanes) = Σ a(r, i) · panel[i][vector][lane] over `depth` values of i.
/// The vector width is 8 or 16 lanes. Each result is summed in the order of i, so that it does not
/// depend on `rows`. Runs on the calling thread.
void MultiplyPanel(int64_t lanes, int64_t vectors, int64_t rows, int64_t depth, const Strided& a,
                   const float* panel, const Target& target);

/// Rows that a product takes at a time: how many fit in registers beside the panel's vectors.
constexpr int64_t TileRows(int64_t lanes, int64_t vectors) {
  if (lanes == 16) return vectors == 4 ? 6 : 8;
  return vectors == 4 ? 2 : vectors == 1 ? 8 : 4;
}

}  // namespace singa::cpu::rnn
