#include "backend/cpu/linalg/tile_product.h"

#include "backend/cpu/vector.h"
#include "core/device/parallel.h"

namespace singa::cpu {
namespace {

/// What becomes of the numbers that are where results go.
enum class Old { kGone, kAdded, kBegins };

/// Computes R x kLanes·J results in registers.
template <int64_t kLanes, int R, int J>
SINGA_MULTI_ISA void MultiplyTile(int64_t depth, const Strided& a, const float* b, int64_t b_step,
                                  float* out, int64_t out_step, Old old) {
  Vec<kLanes> sums[R][J] = {};
  if (old == Old::kBegins) {
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
      for (int j = 0; j < J; ++j) Load(sums[r][j], out + r * out_step + j * kLanes);
    }
  }
  const int64_t row = a.row_step, column = a.column_step;
  // There are few registers for many rows, so a pointer serves four.
  const float* from[(R + 3) / 4];
  for (int r = 0; r < R; r += 4) from[r / 4] = a.data + r * row;
  for (int64_t i = 0; i < depth; ++i) {
    Vec<kLanes> right[J];
    for (int j = 0; j < J; ++j) Load(right[j], b + j * kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const float left = from[r / 4][(r % 4) * row];
#pragma GCC unroll 2
      for (int j = 0; j < J; ++j) sums[r][j] += left * right[j];
    }
    for (const float*& pointer : from) pointer += column;
    b += b_step;
  }
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int j = 0; j < J; ++j) {
      float* to = out + r * out_step + j * kLanes;
      if (old == Old::kAdded) {
        Vec<kLanes> before;
        Load(before, to);
        sums[r][j] += before;
      }
      Store(to, sums[r][j]);
    }
  }
}

template <int64_t kLanes, int R>
void MultiplyRows(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
                  int64_t b_step, float* out, int64_t out_step, Old old) {
  int64_t c = 0;
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes)
    for (int64_t r = 0; r < rows; r += R)
      MultiplyTile<kLanes, R, 2>(depth, {a.data + r * a.row_step, a.row_step, a.column_step}, b + c,
                                 b_step, out + r * out_step + c, out_step, old);
  if (c == columns) return;
  for (int64_t r = 0; r < rows; r += R)
    MultiplyTile<kLanes, R, 1>(depth, {a.data + r * a.row_step, a.row_step, a.column_step}, b + c,
                               b_step, out + r * out_step + c, out_step, old);
}

template <int64_t kLanes>
void MultiplyAll(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
                 int64_t b_step, float* out, int64_t out_step, Old old) {
  const auto multiply = [&]<int R>(int64_t first, int64_t count) {
    MultiplyRows<kLanes, R>(count, columns, depth,
                            {a.data + first * a.row_step, a.row_step, a.column_step}, b, b_step,
                            out + first * out_step, out_step, old);
  };
  if constexpr (kLanes == 16) {
    const int64_t rest = rows % 12;  // 0, 4 or 8
    multiply.template operator()<12>(0, rows - rest);
    if (rest == 8) multiply.template operator()<8>(rows - rest, rest);
    if (rest == 4) multiply.template operator()<4>(rows - rest, rest);
  } else {
    const int64_t fours = rows % 6 == 0 ? 0 : rows % 6 == 2 ? 8 : 4;
    multiply.template operator()<6>(0, rows - fours);
    multiply.template operator()<4>(rows - fours, fours);
  }
}

}  // namespace

template <int64_t kLanes>
void Multiply(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
              int64_t b_step, float* out, int64_t out_step, bool add) {
  MultiplyAll<kLanes>(rows, columns, depth, a, b, b_step, out, out_step,
                      add ? Old::kAdded : Old::kGone);
}

template <int64_t kLanes>
void MultiplyOn(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
                int64_t b_step, float* out, int64_t out_step) {
  MultiplyAll<kLanes>(rows, columns, depth, a, b, b_step, out, out_step, Old::kBegins);
}

template void Multiply<8>(int64_t, int64_t, int64_t, const Strided&, const float*, int64_t, float*,
                          int64_t, bool);
template void Multiply<16>(int64_t, int64_t, int64_t, const Strided&, const float*, int64_t, float*,
                           int64_t, bool);
template void MultiplyOn<8>(int64_t, int64_t, int64_t, const Strided&, const float*, int64_t,
                            float*, int64_t);
template void MultiplyOn<16>(int64_t, int64_t, int64_t, const Strided&, const float*, int64_t,
                             float*, int64_t);

}  // namespace singa::cpu
