#include "core/tensor/turn.h"

#include "core/device/parallel.h"

namespace singa {

namespace {

/// Elements of a side of a square. Its rows fit in registers of every instruction set, or in two.
template <class T>
constexpr size_t kSideOf = sizeof(T) == 1 ? 16 : 32 / sizeof(T);
/// Rows in front of those that are read whose cache lines are fetched: rows are far apart, and
/// processors follow only few of them by themselves.
constexpr int64_t kRowsAhead = 32;

}  // namespace

template <class T>
SINGA_MULTI_ISA void Turn(const T* from, int64_t from_step, int64_t rows, int64_t columns, T* to,
                          int64_t to_step) {
  constexpr auto kSide = static_cast<int64_t>(kSideOf<T>);
  using Row __attribute__((vector_size(kSideOf<T> * sizeof(T)))) = T;
  using Unaligned __attribute__((aligned(alignof(T)), may_alias)) = Row;
  const int64_t whole_rows = rows / kSide * kSide, whole_columns = columns / kSide * kSide;
  for (int64_t r = 0; r < whole_rows; r += kSide) {
    for (int64_t i = 0; i < kSide; ++i) __builtin_prefetch(from + (r + i + kRowsAhead) * from_step);
    for (int64_t c = 0; c < whole_columns; c += kSide) {
      Row square[kSide];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i)
        square[i] = *reinterpret_cast<const Unaligned*>(from + (r + i) * from_step + c);
      TurnSquare(square);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i)
        *reinterpret_cast<Unaligned*>(to + (c + i) * to_step + r) = square[i];
    }
  }
  const auto turn_rest = [&](int64_t first_row, int64_t first_column) {
    for (int64_t c = first_column; c < columns; ++c)
      for (int64_t r = first_row; r < rows; ++r) to[c * to_step + r] = from[r * from_step + c];
  };
  if (whole_columns < columns) turn_rest(0, whole_columns);
  columns = whole_columns;
  if (whole_rows < rows) turn_rest(whole_rows, 0);
}

template void Turn<uint8_t>(const uint8_t*, int64_t, int64_t, int64_t, uint8_t*, int64_t);
template void Turn<uint16_t>(const uint16_t*, int64_t, int64_t, int64_t, uint16_t*, int64_t);
template void Turn<uint32_t>(const uint32_t*, int64_t, int64_t, int64_t, uint32_t*, int64_t);
template void Turn<float>(const float*, int64_t, int64_t, int64_t, float*, int64_t);
template void Turn<uint64_t>(const uint64_t*, int64_t, int64_t, int64_t, uint64_t*, int64_t);

}  // namespace singa
