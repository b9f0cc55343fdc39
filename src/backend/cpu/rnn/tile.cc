#include "backend/cpu/rnn/tile.h"

#include <array>
#include <utility>

#include "backend/cpu/vector.h"
#include "core/device/parallel.h"
#include "core/tensor/round_up.h"

namespace singa::cpu::rnn {
namespace {

/// Moves the results of a tile to their places.
template <int64_t kLanes>
SINGA_MULTI_ISA void StoreTile(const float* values, int rows, int vectors, float* data,
                               const Target& target) {
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < vectors; ++v, values += kLanes) {
      float* to = data + r * target.row_step + target.place[v];
      if (target.count[v] == kLanes) {
        Vec<kLanes> sum, before = {};
        Load(sum, values);
        if (target.add[v]) Load(before, to);
        Store(to, before + sum);
      } else {
        for (int64_t lane = 0; lane < target.count[v]; ++lane)
          to[lane] = (target.add[v] ? to[lane] : 0.0f) + values[lane];
      }
    }
}

/// Computes kRows x kVectors vectors in registers.
template <int64_t kLanes, int kVectors, int kRows>
SINGA_MULTI_ISA void MultiplyTile(int64_t depth, const Strided& a, const float* panel, float* data,
                                  const Target& target) {
  Vec<kLanes> sums[kRows][kVectors] = {};
  const int64_t row = a.row_step, column = a.column_step;
  // There are few registers for many rows, so a pointer serves four.
  const float* from[(kRows + 3) / 4];
  for (int r = 0; r < kRows; r += 4) from[r / 4] = a.data + r * row;
  for (int64_t i = 0; i < depth; ++i) {
    Vec<kLanes> right[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Load(right[v], panel + v * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const float left = from[r / 4][(r % 4) * row];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sums[r][v] += left * right[v];
    }
    for (const float*& pointer : from) pointer += column;
    panel += kVectors * kLanes;
  }
  float values[kRows * kVectors * kLanes];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) Store(values + (r * kVectors + v) * kLanes, sums[r][v]);
  StoreTile<kLanes>(values, kRows, kVectors, data, target);
}

using Tile = void (*)(int64_t depth, const Strided& a, const float* panel, float* data,
                      const Target& target);

template <int64_t kLanes, int kVectors>
void MultiplyRows(int64_t rows, int64_t depth, const Strided& a, const float* panel,
                  const Target& target) {
  constexpr int64_t kMost = TileRows(kLanes, kVectors);
  static constexpr auto kTiles = []<size_t... kRows>(std::index_sequence<kRows...>) {
    return std::array<Tile, kMost>{MultiplyTile<kLanes, kVectors, static_cast<int>(kRows) + 1>...};
  }
  (std::make_index_sequence<kMost>());
  // Tiles of about the same number of rows.
  for (int64_t first = 0; first < rows;) {
    const int64_t rest = rows - first, count = CeilDivide(rest, CeilDivide(rest, kMost));
    float* data = target.data + first * target.row_step;
    // The places are far apart; they come to the cache while the tile is computed.
    for (int64_t r = 0; r < count; ++r)
      for (int v = 0; v < kVectors; ++v)
        __builtin_prefetch(data + r * target.row_step + target.place[v], 1);
    kTiles[count - 1](depth, {a.data + first * a.row_step, a.row_step, a.column_step}, panel, data,
                      target);
    first += count;
  }
}

template <int64_t kLanes>
void MultiplyVectors(int64_t vectors, int64_t rows, int64_t depth, const Strided& a,
                     const float* panel, const Target& target) {
  switch (vectors) {
    case 1:
      return MultiplyRows<kLanes, 1>(rows, depth, a, panel, target);
    case 2:
      return MultiplyRows<kLanes, 2>(rows, depth, a, panel, target);
    case 3:
      return MultiplyRows<kLanes, 3>(rows, depth, a, panel, target);
    default:
      return MultiplyRows<kLanes, 4>(rows, depth, a, panel, target);
  }
}

}  // namespace

void MultiplyPanel(int64_t lanes, int64_t vectors, int64_t rows, int64_t depth, const Strided& a,
                   const float* panel, const Target& target) {
  if (lanes == 16) {
    MultiplyVectors<16>(vectors, rows, depth, a, panel, target);
  } else {
    MultiplyVectors<8>(vectors, rows, depth, a, panel, target);
  }
}

}  // namespace singa::cpu::rnn
