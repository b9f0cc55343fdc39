#pragma once

// Tiles of attention on the CPU, and the loops over them. Everything is computed in float32, but
// for factors of products that are pairs of bfloat16 numbers.
//
// A tile is a matrix with a column for each query, so that the vector units work on many queries at
// once, and sums and maxima over keys need no exchange between lanes:
//
//   scores (keys x queries) = k (keys x D) · q (D x queries)
//   y      (E x queries)    = vᵀ (E x keys) · weights (keys x queries)
//
// The queries of all heads that use one head of keys are rows of one matrix: row r is query r % N
// of the r / N-th of these heads. So a step of sampling with grouped queries fills lanes, too.

#include <algorithm>
#include <cstdint>

#include "backend/cpu/parts.h"
#include "core/device/parallel.h"
#include "core/tensor/round_up.h"
#include "model/formula/attention.h"
#include "model/operation/attention/arguments.h"
#include "model/operation/attention/spec.h"
#include "singa/core/half.h"
#include "singa/core/plan.h"

namespace singa::cpu::attention {

inline constexpr int64_t kTileQueries = 64;
inline constexpr int64_t kTileKeys = 64;

/// Distance of the rows of a matrix of this width. Products read rows in fours. Distances of large
/// powers of two would map many rows to the same set of the first-level cache.
constexpr int64_t RowStep(int64_t width) {
  const int64_t step = RoundUp(width, 4);
  return step % 256 == 0 ? step + 16 : step;
}

/// Below this number of independent things, the work of each is split up.
inline constexpr int64_t kEnoughTasks = 8;
/// Into how many pieces to split things that have `most` each.
inline int64_t SplitWork(int64_t things, int64_t most) {
  return things == 0 ? 1
                     : std::clamp<int64_t>(kEnoughTasks / things, 1, std::max<int64_t>(most, 1));
}

/// Neighbouring queries of one head of keys, and which keys they use.
struct Tile {
  int64_t batch, kv_head;
  int64_t count;                       ///< queries
  int64_t columns;                     ///< count rounded up to vectors
  int64_t any_keys = 0, all_keys = 0;  ///< used by some query, by all: [0, n)
  bool same_mask = true;               ///< of all queries
  int64_t head[kTileQueries];          ///< of each query
  int64_t query[kTileQueries];         ///< position in the sequence
  int64_t keys[kTileQueries];          ///< it may use [0, keys)
  int64_t mask[kTileQueries];          ///< AttentionMask::RowOffset
};

/// One execution.
class Problem {
 public:
  /// Of a forward pass, which tells the words of its dropout to backward.
  Problem(const AttentionForwardSpec& spec, const Execution& execution, int64_t lanes)
      : Problem(spec, execution.inputs[3], execution.scalars,
                {execution.scalars.seed, execution.scalars.offset}, lanes) {
    if (!spec.has_dropout) return;
    auto* draw = execution.out<uint64_t>(2);
    draw[0] = execution.scalars.seed;
    draw[1] = execution.scalars.offset;
  }
  Problem(const AttentionBackwardSpec& spec, const Execution& execution, int64_t lanes)
      : Problem(spec, execution.inputs[4], execution.scalars, DrawnOf(spec, execution), lanes) {}

  float scale() const { return scale_; }
  static int64_t TilesOfHead(const AttentionGeometry& geometry) {
    return (geometry.queries * geometry.group() + kTileQueries - 1) / kTileQueries;
  }
  /// Tile `index` of a head of keys; heads are counted over all batches.
  void Locate(int64_t kv_head, int64_t index, Tile* tile) const;
  /// The number of keys that query i may use.
  int64_t KeysOf(int64_t i) const {
    return geometry_.causal ? formula::CausalKeys(first_query_, i, geometry_.keys) : geometry_.keys;
  }
  /// Adds the mask to one query's scores of the first n keys.
  void AddMask(int64_t b, int64_t h, int64_t i, int64_t n, float* scores) const;
  /// Adds the mask to one query's scores of the keys [first, first + n).
  void MaskRow(const Tile& tile, int64_t c, int64_t first, int64_t n, float* scores) const;
  /// As MaskRow, for all queries (n x columns); also excludes later keys.
  void Mask(const Tile& tile, int64_t first, int64_t n, float* scores) const;
  /// Dropout's factors of one query's weights of these keys. Rows are counted over batch, heads and
  /// queries.
  void DropoutRow(int64_t row, int64_t first, int64_t n, float* factors) const;
  void DropoutRow(const Tile& tile, int64_t c, int64_t first, int64_t n, float* factors) const;
  /// Of all queries (n x columns).
  void DropoutFactors(const Tile& tile, int64_t first, int64_t n, float* factors) const;

 private:
  /// `mask` is empty where there is none; dropout takes the words of `drawn`.
  Problem(const AttentionGeometry& geometry, const Tensor& mask, const Scalars& scalars,
          const formula::AttentionDrawn& drawn, int64_t lanes)
      : geometry_(geometry),
        mask_(mask),
        scale_(static_cast<float>(scalars.v[0])),
        first_query_(static_cast<int64_t>(scalars.v[2])),
        dropout_(drawn, geometry.keys, scalars.v[1]),
        lanes_(lanes) {}
  static formula::AttentionDrawn DrawnOf(const AttentionBackwardSpec& spec,
                                         const Execution& execution) {
    if (!spec.has_dropout) return {};
    const auto* draw = execution.in<uint64_t>(7);
    return {draw[0], draw[1]};
  }

  const AttentionGeometry& geometry_;
  AttentionMask<float> mask_;
  float scale_;
  int64_t first_query_;
  formula::AttentionDropout dropout_;
  int64_t lanes_;
};

/// Threads that are worth their start for so many multiply-adds.
inline int64_t ThreadsFor(int64_t multiply_adds, int64_t most) {
  constexpr int64_t kGrain = int64_t{1} << 17;
  return std::clamp<int64_t>(multiply_adds / kGrain, 1, most);
}

/// Calls body(task, slot) for each task, on up to `threads` threads; `slot` numbers the thread.
template <class Body>
void ForEachTask(int64_t tasks, int64_t threads, const Body& body) {
  ParallelItems(tasks, threads, [&](Items& items) {
    for (const int64_t task : items) body(task, items.thread());
  });
}

// Loops. T is float or BFloat16.

/// to[r][i] = rows of `length` elements, zeros behind them up to the step and up to `padded` rows.
template <class T>
void PackRows(const T* from, int64_t row_step, int64_t rows, int64_t padded, int64_t length,
              float* to, int64_t to_step);

/// The queries of a tile, or other tensors of that shape: factor · x. `rows` (columns x row_step)
/// has zeros behind each row and behind the queries, `turned` (length x columns) its columns.
template <class T>
void LoadQueries(const AttentionRows<const T>& x, const Tile& tile, int64_t length, float factor,
                 float* rows, int64_t row_step, float* turned);

/// The reverse: row c becomes factors[c] · column c. `scratch`: `columns` rows of
/// RowStep(length).
template <class T>
void StoreQueries(const float* turned, const Tile& tile, int64_t length, const float* factors,
                  float* scratch, const AttentionRows<T>& y);

// For products of pairs of bfloat16 numbers (linalg/pair_product.h). A pair is a word.

inline uint32_t* Words(float* workspace) { return reinterpret_cast<uint32_t*>(workspace); }

/// Rows of `length` numbers as words of neighbours, zeros behind them up to the step and up to
/// `padded` rows.
void CopyRows(const BFloat16* from, int64_t row_step, int64_t rows, int64_t padded, int64_t length,
              uint32_t* to, int64_t to_step);

/// Words of a row and the next one, which is zero behind the last: to[r / 2 · to_step + i], with
/// zeros behind `length` up to the step.
void JoinRows(const BFloat16* from, int64_t row_step, int64_t rows, int64_t length, uint32_t* to,
              int64_t to_step);

/// LoadQueries for words of neighbours.
void LoadQueryWords(const AttentionRows<const BFloat16>& x, const Tile& tile, int64_t length,
                    uint32_t* rows, int64_t row_step, uint32_t* turned);

/// Replaces scores (keys x columns) by weights exp(score − most), where `most` (columns) becomes
/// the maximum of these and all earlier scores; -inf at first. `sum` (columns) is that of all
/// weights so far. Other sums over earlier weights have to be multiplied by `factor` (columns).
/// Returns whether any factor is not 1.
bool UpdateSoftmax(float* scores, int64_t keys, int64_t columns, float* most, float* sum,
                   float* factor);

/// The same for one query; returns the factor.
float UpdateSoftmaxRow(float* scores, int64_t keys, float* most, float* sum);
/// The logarithm of the sum of exponentials, from the maximum of the scores and the sum of weights.
float LogSumExp(float most, float sum);

/// Σ a · b, in float32.
template <class T>
float Dot(const T* a, const T* b, int64_t n);

/// Multiplies column c of each row by factors[c].
void ScaleColumns(float* x, int64_t rows, int64_t columns, const float* factors);

/// x += y
void AddTo(const float* y, int64_t n, float* x);

/// x *= y
void MultiplyBy(const float* y, int64_t n, float* x);

/// From scores and products dy · v, of keys x columns: the weights of v, exp(score − logsumexp) ·
/// z, in the place of the scores, and the gradients of the scores, weight · (z · product − along),
/// in the place of the products. z are dropout's factors; null: 1.
void WeightsAndGradients(float* scores, float* products, const float* z, int64_t keys,
                         int64_t columns, const float* logsumexp, const float* along);
/// The same for one query.
void RowWeightsAndGradients(float* scores, float* products, const float* z, int64_t keys,
                            float logsumexp, float along);

/// Sums of the gradients of scores over the axes along which the mask broadcasts: a matrix (keys x
/// queries) for each of `heads` heads of the mask, where the sizes may be 1.
struct MaskSums {
  int64_t heads, keys, queries;

  int64_t size() const { return heads * keys * queries; }
  /// Adds those of a tile (n x columns) for the keys [first, first + n). `first_head` is the head
  /// of the first matrix.
  void Add(const Tile& tile, int64_t first_head, int64_t first, int64_t n, const float* gradients,
           float* sums) const;
  /// The sums of `count` of these, `apart` floats apart, as (heads, queries, keys).
  void Store(const float* sums, int64_t count, int64_t apart, float* out) const;
};

/// y = factor · x
template <class T>
void StoreScaled(const float* x, int64_t n, float factor, T* y);

/// to[i] = Σ over `count` matrices that are `apart` floats apart.
template <class T>
void StoreSum(const float* from, int64_t count, int64_t apart, int64_t n, T* to);

}  // namespace singa::cpu::attention
