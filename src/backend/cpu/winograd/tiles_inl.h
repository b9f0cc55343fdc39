#pragma once

// The loops of Kernels. Each file that includes this defines SINGA_TARGET, the instruction set of
// its vectors, and instantiates the loops for their length.

#include <algorithm>

#include "backend/cpu/winograd/tiles.h"

#include "core/device/inline.h"
#include "core/device/parallel.h"
#include "core/tensor/turn.h"

namespace singa::cpu::winograd {
namespace {

/// Loads a row of n pixels of a tile, starting at (h, w); pixels outside the image are zero.
template <int n, class T, int64_t kLanes>
SINGA_INLINE void LoadRow(const Image<kLanes>& image, const T* x, int64_t h, int64_t w, bool inside,
                          Vec<kLanes>* row) {
  const T* from = x + h * image.row_step + w * image.column_step;
  if (inside) {
    SINGA_UNROLL for (int j = 0; j < n; ++j) Load(row[j], from + j * image.column_step);
    return;
  }
  const bool there = h >= 0 && h < image.height;
  SINGA_UNROLL for (int j = 0; j < n; ++j) {
    row[j] = Vec<kLanes>{};
    if (there && w + j >= 0 && w + j < image.width) Load(row[j], from + j * image.column_step);
  }
}

/// Transforms a tile of vectors along both axes in registers. `load(i, row)` loads row i of `rows`,
/// `across(row)` transforms it to `columns` vectors, `down(column)` transforms a column of the
/// result, and `store(j, column)` stores it. Only one row at a time fits in registers.
template <int64_t kLanes, class Taps, int rows, int columns, class LoadRow, class Across,
          class Down, class StoreColumn>
SINGA_INLINE void TransformTile(const LoadRow& load, const Across& across, const Down& down,
                                const StoreColumn& store) {
  Vec<kLanes> tile[rows][columns];
#pragma GCC unroll 1
  for (int i = 0; i < rows; ++i) {
    Vec<kLanes> row[Taps::kInAcross];
    load(i, row);
    across(row);
    SINGA_UNROLL for (int j = 0; j < columns; ++j) tile[i][j] = row[j];
  }
#pragma GCC unroll 1
  for (int j = 0; j < columns; ++j) {
    Vec<kLanes> column[Taps::kInDown];
    SINGA_UNROLL for (int i = 0; i < rows; ++i) column[i] = tile[i][j];
    down(column);
    store(j, column);
  }
}

/// Stores column j of a tile's values.
template <class Taps, class V>
SINGA_INLINE void StoreValues(float* values, int64_t position_step, int j, const V* column) {
  SINGA_UNROLL for (int i = 0; i < Taps::kInDown; ++i)
      Store(values + (i * Taps::kInAcross + j) * position_step, column[i]);
}

/// Loads the first `count` numbers and fills with zeros; loads all if kFull.
template <bool kFull, class V, class T>
SINGA_INLINE void LoadSome(V& v, const T* from, int64_t count) {
  if constexpr (kFull) return Load(v, from);
  float lanes[sizeof(V) / sizeof(float)] = {};
  for (int64_t lane = 0; lane < count; ++lane) lanes[lane] = static_cast<float>(from[lane]);
  Load(v, lanes);
}

/// Stores the first `count` numbers and fills with zeros up to `all`; stores all if kFull. The
/// other lanes may be NaN (zero times infinity).
template <bool kFull, class V, class T>
SINGA_INLINE void StoreSome(T* to, const V& v, int64_t count, int64_t all) {
  if constexpr (kFull) return Store(to, v);
  float lanes[sizeof(V) / sizeof(float)];
  Store(lanes, v);
  for (int64_t lane = 0; lane < all; ++lane) to[lane] = T(lane < count ? lanes[lane] : 0.0f);
}

/// Loads a vector of each lane's weights, and makes vectors of one weight of each lane.
template <class T, int64_t kLanes>
SINGA_INLINE void LoadTurned(const T* from, int64_t lane_step, Wide<kLanes> (&rows)[kLanes]) {
#pragma GCC unroll 16
  for (int64_t lane = 0; lane < kLanes; ++lane) Load(rows[lane], from + lane * lane_step);
  TurnSquare(rows);
}

constexpr int64_t kAhead = 96;  // weights of a row that are fetched before they are gathered

/// Gathers weights from `from` on as [channel][weight][lane], of at most kLanes of the `left`
/// channels. Returns of how many. Lanes without a result get zeros.
template <class T, int64_t kLanes, int kWeights>
SINGA_INLINE int64_t GatherWeights(const Filter& filter, const T* from, int64_t left,
                                   float (&to)[kLanes * kWeights][kLanes]) {
  Wide<kLanes> rows[kLanes];
  if (filter.results == kLanes && !filter.turned && left >= kLanes) {
    for (int64_t i = 0; i < kLanes * kWeights; i += kLanes) {
#pragma GCC unroll 16
      for (int64_t lane = 0; lane < kLanes; ++lane)  // more rows than processors fetch ahead
        __builtin_prefetch(from + lane * filter.lane_step + i + kAhead);
      LoadTurned<T, kLanes>(from + i, filter.lane_step, rows);
#pragma GCC unroll 16
      for (int64_t row = 0; row < kLanes; ++row) Store(to[i + row], rows[row]);
    }
    return kLanes;
  }
  if (filter.results == kLanes && filter.turned && left > 1) {  // reads into the next channel
    for (int64_t i = 0; i < kWeights; i += kLanes) {
      LoadTurned<T, kLanes>(from + i, filter.lane_step, rows);
      const int64_t count = std::min(kLanes, kWeights - i);
#pragma GCC unroll 16
      for (int64_t row = 0; row < kLanes; ++row)
        if (row < count) Store(to[kWeights - 1 - i - row], rows[row]);
    }
    return 1;
  }
  for (int64_t i = 0; i < kWeights; ++i) std::fill_n(to[i], kLanes, 0.0f);
  for (int64_t lane = 0; lane < filter.results; ++lane)
    for (int64_t i = 0; i < kWeights; ++i)
      to[filter.turned ? kWeights - 1 - i : i][lane] =
          static_cast<float>(from[lane * filter.lane_step + i]);
  return 1;
}

}  // namespace

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::TransformInput(const Image<kLanes>& image, const T* x,
                                                           int64_t h, int64_t w, float* values,
                                                           int64_t position_step) {
  using V = Vec<kLanes>;
  const bool inside =
      h >= 0 && w >= 0 && h + Taps::kInDown <= image.height && w + Taps::kInAcross <= image.width;
  for (int64_t block = 0; block < image.blocks; ++block) {
    const T* from = x + image.offset(block);
    float* to = values + image.channel(block);
    TransformTile<kLanes, Taps, Taps::kInDown, Taps::kInAcross>(
        [&](int i, V* row)
            SINGA_INLINE_LAMBDA { LoadRow<Taps::kInAcross>(image, from, h + i, w, inside, row); },
        [](V* v) SINGA_INLINE_LAMBDA { InputAxis<typename Taps::Across>(v); },
        [](V* v) SINGA_INLINE_LAMBDA { InputAxis<typename Taps::Down>(v); },
        [&](int j, const V* column)
            SINGA_INLINE_LAMBDA { StoreValues<Taps>(to, position_step, j, column); });
  }
}

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::TransformOutputGradient(const Image<kLanes>& image,
                                                                    const T* dy, int64_t h,
                                                                    int64_t w, float* values,
                                                                    int64_t position_step) {
  using V = Vec<kLanes>;
  const bool inside = h + Taps::kOutDown <= image.height && w + Taps::kOutAcross <= image.width;
  for (int64_t block = 0; block < image.blocks; ++block) {
    const T* from = dy + image.offset(block);
    float* to = values + image.channel(block);
    TransformTile<kLanes, Taps, Taps::kOutDown, Taps::kInAcross>(
        [&](int i, V* row)
            SINGA_INLINE_LAMBDA { LoadRow<Taps::kOutAcross>(image, from, h + i, w, inside, row); },
        [](V* v) SINGA_INLINE_LAMBDA { OutputGradientAxis<typename Taps::Across>(v); },
        [](V* v) SINGA_INLINE_LAMBDA { OutputGradientAxis<typename Taps::Down>(v); },
        [&](int j, const V* column)
            SINGA_INLINE_LAMBDA { StoreValues<Taps>(to, position_step, j, column); });
  }
}

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::TransformOutput(
    const Image<kLanes>& image, int64_t first, int64_t blocks, const float* values,
    int64_t position_step, const After<T>& after, int64_t h, int64_t w, T* y) {
  using V = Vec<kLanes>;
  const int64_t rows = std::min<int64_t>(Taps::kOutDown, image.height - h);
  const int64_t columns = std::min<int64_t>(Taps::kOutAcross, image.width - w);
  const auto transform = [&]<bool kFull>(int64_t block) SINGA_INLINE_LAMBDA {
    // `filled` lanes hold channels, `there` lanes have memory: blocked images are padded with
    // zeros.
    const int64_t filled = kFull ? kLanes : image.filled(first + block);
    const int64_t there = kFull || !image.channels_last ? kLanes : filled;
    V shift = {};
    if (after.bias) LoadSome<kFull>(shift, after.bias + (first + block) * kLanes, filled);
    const float* from = values + block * kLanes;
    const int64_t place =
        (first + block) * image.block_step + h * image.row_step + w * image.column_step;
    TransformTile<kLanes, Taps, Taps::kInDown, Taps::kOutAcross>(
        [&](int i, V* row) SINGA_INLINE_LAMBDA {
          SINGA_UNROLL for (int j = 0; j < Taps::kInAcross; ++j)
              Load(row[j], from + (i * Taps::kInAcross + j) * position_step);
        },
        [](V* v) SINGA_INLINE_LAMBDA { OutputAxis<typename Taps::Across>(v); },
        [](V* v) SINGA_INLINE_LAMBDA { OutputAxis<typename Taps::Down>(v); },
        [&](int j, const V* column) SINGA_INLINE_LAMBDA {
          if (j >= columns) return;
          SINGA_UNROLL for (int i = 0; i < Taps::kOutDown; ++i) if (i < rows) {
            const int64_t at = place + i * image.row_step + j * image.column_step;
            V v = column[i] + shift;
            if (after.add) {
              V other;
              LoadSome<kFull>(other, after.add + at, there);
              v += other;
            }
            if constexpr (kLanes > kRegisterLanes) {
              if (after.relu) v.Rectify();
            } else if (after.relu) {
              v = v <= 0.0f ? V{} : v;
            }
            StoreSome<kFull>(y + at, v, filled, there);
          }
        });
  };
  const bool last_is_full = image.filled(first + blocks - 1) == kLanes;
  const int64_t full = last_is_full ? blocks : blocks - 1;
  for (int64_t block = 0; block < full; ++block) transform.template operator()<true>(block);
  if (!last_is_full) transform.template operator()<false>(full);
}

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::TransformFilter(const Filter& filter, const T* weights,
                                                            float* values, int64_t position_step,
                                                            int64_t columns) {
  using V = Vec<kLanes>;
  constexpr int kWeights = Taps::kWeights;
  float gathered[kLanes * kWeights][kLanes];
  for (int64_t d = 0; d < filter.depth;) {
    const int64_t count = GatherWeights<T, kLanes, kWeights>(
        filter, weights + d * filter.depth_step, filter.depth - d, gathered);
    for (int64_t c = 0; c < count; ++c, ++d) {
      float* to = values + d * columns;
      TransformTile<kLanes, Taps, Taps::kDown, Taps::kInAcross>(
          [&](int i, V* row) SINGA_INLINE_LAMBDA {
            SINGA_UNROLL for (int j = 0; j < Taps::kAcross; ++j)
                Load(row[j], gathered[c * kWeights + i * Taps::kAcross + j]);
          },
          [](V* v) SINGA_INLINE_LAMBDA { FilterAxis<typename Taps::Across>(v); },
          [](V* v) SINGA_INLINE_LAMBDA { FilterAxis<typename Taps::Down>(v); },
          [&](int j, const V* column)
              SINGA_INLINE_LAMBDA { StoreValues<Taps>(to, position_step, j, column); });
    }
  }
}

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::TransformFilterGradient(int64_t depth,
                                                                    const float* values,
                                                                    int64_t position_step,
                                                                    T* weights) {
  using V = Vec<kLanes>;
  for (int64_t d = 0; d < depth; d += kLanes) {
    const int64_t filled = std::min(kLanes, depth - d);
    TransformTile<kLanes, Taps, Taps::kInDown, Taps::kAcross>(
        [&](int i, V* row) SINGA_INLINE_LAMBDA {
          SINGA_UNROLL for (int j = 0; j < Taps::kInAcross; ++j)
              Load(row[j], values + (i * Taps::kInAcross + j) * position_step + d);
        },
        [](V* v) SINGA_INLINE_LAMBDA { FilterGradientAxis<typename Taps::Across>(v); },
        [](V* v) SINGA_INLINE_LAMBDA { FilterGradientAxis<typename Taps::Down>(v); },
        [&](int j, const V* column) SINGA_INLINE_LAMBDA {
          float values_of[Taps::kDown][kLanes];
          SINGA_UNROLL for (int i = 0; i < Taps::kDown; ++i) Store(values_of[i], column[i]);
          for (int64_t lane = 0; lane < filled; ++lane)
            for (int i = 0; i < Taps::kDown; ++i)
              weights[(d + lane) * Taps::kWeights + i * Taps::kAcross + j] = T(values_of[i][lane]);
        });
  }
}

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::Add(int64_t count, const float* from, float* to) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <class T, int64_t kLanes, class Taps>
SINGA_TARGET void Kernels<T, kLanes, Taps>::SumRow(const T* row, int64_t step, int64_t count,
                                                   double* sums) {
  Vec<kLanes> sum = {};
  for (int64_t i = 0; i < count; ++i) {
    Vec<kLanes> v;
    Load(v, row + i * step);
    sum += v;
  }
  float lanes[kLanes];
  Store(lanes, sum);
  for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += lanes[lane];
}

#define SINGA_INSTANTIATE_FILTERS(T, kLanes)      \
  template struct Kernels<T, kLanes, Taps<3, 3>>; \
  template struct Kernels<T, kLanes, Taps<5, 5>>; \
  template struct Kernels<T, kLanes, Taps<1, 3>>; \
  template struct Kernels<T, kLanes, Taps<3, 1>>; \
  template struct Kernels<T, kLanes, Taps<1, 7>>; \
  template struct Kernels<T, kLanes, Taps<7, 1>>
#define SINGA_INSTANTIATE(kLanes)              \
  SINGA_INSTANTIATE_FILTERS(float, kLanes);    \
  SINGA_INSTANTIATE_FILTERS(BFloat16, kLanes); \
  template struct Kernels<BFloat16, kLanes, LargeTile>

}  // namespace singa::cpu::winograd
