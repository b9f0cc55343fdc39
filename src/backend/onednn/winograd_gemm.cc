#include "backend/onednn/winograd_gemm.h"

#include "backend/onednn/winograd_transform.h"
#include "core/parallel.h"

namespace singa::onednn::winograd {
namespace {

/// A tile of R x 16·J results that stay in registers: 24 of the 32 that AVX-512 has, at most.
template <int R, int J>
SINGA_MULTI_ISA void MultiplyTile(int64_t depth, const Strided& a, const float* b, int64_t b_step,
                                  float* out, int64_t out_step, bool add) {
  Vec sums[R][J] = {};
  const int64_t row = a.row_step, column = a.column_step;
  // Few registers for many rows: each pointer serves four.
  const float* from[(R + 3) / 4];
  for (int r = 0; r < R; r += 4) from[r / 4] = a.data + r * row;
  for (int64_t i = 0; i < depth; ++i) {
    Vec right[J];
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
  for (int r = 0; r < R; ++r) {
    for (int j = 0; j < J; ++j) {
      float* to = out + r * out_step + j * kLanes;
      if (add) {
        Vec before;
        Load(before, to);
        sums[r][j] += before;
      }
      Store(to, sums[r][j]);
    }
  }
}

template <int R>
void MultiplyRows(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
                  int64_t b_step, float* out, int64_t out_step, bool add) {
  int64_t c = 0;
  for (; c + 2 * kLanes <= columns; c += 2 * kLanes)
    for (int64_t r = 0; r < rows; r += R)
      MultiplyTile<R, 2>(depth, {a.data + r * a.row_step, a.row_step, a.column_step}, b + c, b_step,
                         out + r * out_step + c, out_step, add);
  if (c == columns) return;
  for (int64_t r = 0; r < rows; r += R)
    MultiplyTile<R, 1>(depth, {a.data + r * a.row_step, a.row_step, a.column_step}, b + c, b_step,
                       out + r * out_step + c, out_step, add);
}

}  // namespace

void Multiply(int64_t rows, int64_t columns, int64_t depth, const Strided& a, const float* b,
              int64_t b_step, float* out, int64_t out_step, bool add) {
  if (rows % 12 == 0) {
    MultiplyRows<12>(rows, columns, depth, a, b, b_step, out, out_step, add);
  } else if (rows % 8 == 0) {
    MultiplyRows<8>(rows, columns, depth, a, b, b_step, out, out_step, add);
  } else {
    MultiplyRows<4>(rows, columns, depth, a, b, b_step, out, out_step, add);
  }
}

}  // namespace singa::onednn::winograd
