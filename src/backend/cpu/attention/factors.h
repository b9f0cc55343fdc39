#pragma once

// The factors of the products that forward and backward have in common: q, k and v, and the scores,
// in the workspace of a thread.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/tile.h"
#include "backend/cpu/linalg/pair_product.h"
#include "backend/cpu/linalg/tile_product.h"
#include "singa/core/half.h"

namespace singa::cpu::attention {

/// As float32 numbers.
template <class T, int64_t kVectorLanes>
class FloatFactors {
 public:
  using Type = T;
  static constexpr int64_t kLanes = kVectorLanes;
  static constexpr double kError = 0;

  /// `q_step` is the distance of the rows of q.
  FloatFactors(const AttentionGeometry& g, int64_t q_step, Parts* parts)
      : dim_(g.dim),
        value_dim_(g.value_dim),
        q_step_(q_step),
        key_step_(RowStep(g.dim)),
        value_step_(RowStep(g.value_dim)),
        q_(parts->Take(g.dim * kTileQueries)),
        q_rows_(parts->Take(q_step * kTileQueries)),
        keys_(parts->Take(kTileKeys * key_step_)),
        values_(parts->Take(kTileKeys * value_step_)) {}
  static const char* Name() { return "cpu attention by tiles"; }

  void LoadQueries(const AttentionRows<const T>& q, const Tile& tile, float scale,
                   float* workspace) const {
    attention::LoadQueries<T>(q, tile, dim_, scale, workspace + q_rows_, q_step_, workspace + q_);
  }
  /// n keys and values from `first` on.
  void LoadKeys(const AttentionRows<const T>& k, const AttentionRows<const T>& v, const Tile& tile,
                int64_t first, int64_t n, float* workspace) const {
    PackRows(k.At(tile.batch, tile.kv_head, first), k.row, n, RoundUp(n, 4), dim_,
             workspace + keys_, key_step_);
    PackRows(v.At(tile.batch, tile.kv_head, first), v.row, n, RoundUp(n, 4), value_dim_,
             workspace + values_, value_step_);
  }
  /// scores (keys, in fours, x columns) = scale · k · q
  void Score(const Tile& tile, int64_t n, float, float* workspace, float* scores) const {
    Multiply<kLanes>(RoundUp(n, 4), tile.columns, dim_, {workspace + keys_, key_step_, 1},
                     workspace + q_, tile.columns, scores, tile.columns, false);
  }

 protected:
  int64_t dim_, value_dim_;
  int64_t q_step_, key_step_, value_step_;
  int64_t q_, q_rows_;  ///< times scale; D x columns, and queries x D
  int64_t keys_, values_;
};

/// As pairs of bfloat16 numbers. Weights and gradients of scores are rounded to them.
class PairFactors {
 public:
  using Type = BFloat16;
  static constexpr int64_t kLanes = 16;
  static constexpr double kError = kPairError;

  /// `row_step` is that of rows of queries, at least that of keys.
  PairFactors(const AttentionGeometry& g, const PairLoops& loops, int64_t row_step, Parts* parts)
      : loops_(loops),
        dim_(g.dim),
        value_dim_(g.value_dim),
        pairs_(CeilDivide(g.dim, 2)),
        key_step_(RowStep(pairs_)),
        rows_(parts->Take(std::max(key_step_, row_step) * kTileQueries)),
        q_(parts->Take(pairs_ * kTileQueries)),
        keys_(parts->Take(kTileKeys * key_step_)) {}
  static const char* Name() { return "cpu attention by tiles, bfloat16 products"; }

  void LoadQueries(const AttentionRows<const BFloat16>& q, const Tile& tile, float,
                   float* workspace) const {
    LoadQueryWords(q, tile, dim_, Words(workspace + rows_), key_step_, Words(workspace + q_));
  }
  void Score(const Tile& tile, int64_t n, float scale, float* workspace, float* scores) const {
    loops_.multiply(RoundUp(n, 4), tile.columns, pairs_, {Words(workspace + keys_), key_step_, 1},
                    {Words(workspace + q_), 16, tile.columns},
                    {scores, tile.columns, 16, scale, false});
  }

 protected:
  /// `keys` begins with the first one.
  void CopyKeys(const BFloat16* keys, int64_t row, int64_t n, float* workspace) const {
    CopyRows(keys, row, n, RoundUp(n, 4), dim_, Words(workspace + keys_), key_step_);
  }

  const PairLoops& loops_;
  int64_t dim_, value_dim_, pairs_;
  int64_t key_step_;
  int64_t rows_;  ///< of queries; q at first
  int64_t q_;     ///< pairs x columns
  int64_t keys_;
};

}  // namespace singa::cpu::attention
