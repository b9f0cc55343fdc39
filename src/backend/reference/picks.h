#pragma once

// Groups the positions of an index argument by the row that they name.

#include <algorithm>
#include <cstdint>

#include "backend/reference/indices.h"

namespace singa::reference {

/// Group `row` is picks[start[row]] to picks[start[row + 1] − 1], in their original order.
struct PickGroups {
  const int64_t* start;  ///< rows + 1
  const int64_t* picks;

  const int64_t* begin(int64_t row) const { return picks + start[row]; }
  int64_t size(int64_t row) const { return start[row + 1] - start[row]; }
};

/// Bytes of workspace for GroupPicks.
inline size_t GroupPicksWorkspace(int64_t count, int64_t rows) {
  return static_cast<size_t>(2 * count + rows + 2) * sizeof(int64_t);
}

/// Groups `count` indices of rows [0, rows); see ReadPositions for `wrap` and errors.
inline PickGroups GroupPicks(const char* op, const Tensor& indices, int64_t count, int64_t rows,
                             bool wrap, void* workspace) {
  auto* positions = static_cast<int64_t*>(workspace);
  int64_t* picks = positions + count;
  int64_t* start = picks + count;
  ReadPositions(op, indices, rows, wrap, positions);
  std::fill_n(start, rows + 2, 0);
  // A counting sort: start[row + 2] counts, and the prefix sum makes start[row + 1] the beginning
  // of the row's group. Placing the picks advances it to the group's end, the beginning of the
  // next.
  for (int64_t k = 0; k < count; ++k) ++start[positions[k] + 2];
  for (int64_t row = 2; row < rows + 2; ++row) start[row] += start[row - 1];
  for (int64_t k = 0; k < count; ++k) picks[start[positions[k] + 1]++] = k;
  return {start, picks};
}

}  // namespace singa::reference
