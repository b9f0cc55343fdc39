#pragma once

// Transposition of matrices by squares of elements in registers.

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/device/inline.h"

namespace singa {

namespace detail {

/// Swaps the off-diagonal blocks of each square of 2 · kStep rows and columns.
template <size_t kStep, class Row, size_t kSide, size_t... j>
SINGA_INLINE void ExchangeBlocks(Row (&rows)[kSide], std::index_sequence<j...>) {
#pragma GCC unroll 16
  for (size_t i = 0; i < kSide; ++i) {
    if (i & kStep) continue;
    const Row upper = rows[i], lower = rows[i + kStep];
    rows[i] = __builtin_shufflevector(upper, lower, ((j & kStep) ? kSide + j - kStep : j)...);
    rows[i + kStep] =
        __builtin_shufflevector(upper, lower, ((j & kStep) ? kSide + j : j + kStep)...);
  }
}

}  // namespace detail

/// Transposes a square of kSide vectors of as many elements; 16, or a smaller power of two.
template <class Row, size_t kSide>
SINGA_INLINE void TurnSquare(Row (&rows)[kSide]) {
  static_assert(sizeof(rows[0]) / sizeof(rows[0][0]) == kSide);
  constexpr std::make_index_sequence<kSide> kColumns;
  if constexpr (kSide > 8) detail::ExchangeBlocks<8>(rows, kColumns);
  if constexpr (kSide > 4) detail::ExchangeBlocks<4>(rows, kColumns);
  if constexpr (kSide > 2) detail::ExchangeBlocks<2>(rows, kColumns);
  detail::ExchangeBlocks<1>(rows, kColumns);
}

/// to[c · to_step + r] = from[r · from_step + c] for r < rows and c < columns. T is an unsigned
/// integer or float. The matrices do not overlap.
template <class T>
void Turn(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to, int64_t to_step);

}  // namespace singa
