#include "backend/cpu/rnn/weight_gradient.h"

#include <algorithm>

#include "backend/cpu/rnn/network.h"
#include "core/device/parallel.h"

namespace singa::cpu::rnn {
namespace {

constexpr int64_t kColumns = 48;  ///< of the left operand at a time; a multiple of most tiles' rows
constexpr int64_t kDepth = 256;   ///< rows at a time, so that operands stay in the L2 cache

/// Copies a block of columns, which lie far apart, close together.
SINGA_MULTI_ISA void CopyBlock(const float* from, int64_t step, int64_t rows, int64_t columns,
                               float* to) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) to[i * kColumns + j] = from[i * step + j];
}

/// Adds up `rows` rows in float32, then adds these sums to `sums`.
SINGA_MULTI_ISA void AddRows(const float* a, int64_t step, int64_t columns, int64_t rows,
                             double* sums) {
  float own[kColumns] = {};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) own[j] += a[i * step + j];
  for (int64_t j = 0; j < columns; ++j) sums[j] += static_cast<double>(own[j]);
}

}  // namespace

void PackRows(const TwoParts& from, int64_t rows, int64_t row_step, const Panels& panels,
              float* packed) {
  const int64_t grain = kParallelGrain * panels.count() / (rows * panels.width()) + 1;
  ParallelFor(panels.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      panels.Pack(panel, from.first, row_step, 1, rows, 0, from.first_rows, packed);
      if (from.first_rows < rows)
        panels.Pack(panel, from.second - from.first_rows * row_step, row_step, 1, rows,
                    from.first_rows, rows, packed);
    }
  });
}

void SumProducts(const float* a, int64_t a_step, int64_t columns, int64_t rows,
                 const Panels& panels, const float* packed, float* dw, int64_t dw_step) {
  const int64_t blocks = CeilDivide(columns, kColumns);
  const int64_t work = std::min(columns, kColumns) * rows * panels.width();
  ParallelFor(blocks, kProductGrain / work + 1, [&](int64_t begin, int64_t end) {
    alignas(64) float left[kDepth * kColumns];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t column = block * kColumns, count = std::min(kColumns, columns - column);
      for (int64_t first = 0; first < rows; first += kDepth) {
        const int64_t depth = std::min(kDepth, rows - first);
        CopyBlock(a + first * a_step + column, a_step, depth, count, left);
        for (int64_t i = 0; i < panels.count(); ++i) {
          const Panel& panel = panels[i];
          MultiplyPanel(panels.lanes(), panel.vectors(), count, depth, {left, 1, kColumns},
                        packed + panel.place * rows + first * panel.vectors() * panels.lanes(),
                        panel.To(dw + column * dw_step, dw_step, 0, panels.lanes(), first > 0));
        }
      }
    }
  });
}

void SumRows(const float* a, int64_t a_step, int64_t columns, int64_t rows, float* sums) {
  constexpr int64_t kRows = 16;  // summed in float32
  ParallelFor(CeilDivide(columns, kColumns), kParallelGrain / (kColumns * rows) + 1,
              [&](int64_t begin, int64_t end) {
                for (int64_t block = begin; block < end; ++block) {
                  const int64_t first = block * kColumns;
                  const int64_t count = std::min(kColumns, columns - first);
                  double total[kColumns] = {};
                  for (int64_t row = 0; row < rows; row += kRows)
                    AddRows(a + row * a_step + first, a_step, count, std::min(kRows, rows - row),
                            total);
                  for (int64_t j = 0; j < count; ++j)
                    sums[first + j] = static_cast<float>(total[j]);
                }
              });
}

}  // namespace singa::cpu::rnn
