// Gradients of attention by tiles of queries and keys (Dao et al. 2022). The weights are computed
// again from the scores and forward's logsumexp. With dropout's factors z:
//
//   dv = Σ z · p · dy,  ds = p · (z · dy·v − dy·y),  dq = scale · Σ ds · k,  dk = scale · Σ ds · q
//
// A task takes the tiles of queries of one head of keys, one after the other, and adds up dk and dv
// of the whole head. Where there are few heads, several tasks take every so-manieth tile of one,
// and their sums are added in the end. How many depends on the shapes alone, and so do all results.
//
// The gradient of the mask is Σ ds over the axes along which it broadcasts. The heads of keys whose
// sums are the same elements are a team. A task then takes several heads of one team, and has sums
// of its own, which are added in the end.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/tile.h"
#include "backend/cpu/linalg/tile_product.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Where the tiles of a thread lie in its workspace.
struct Workspace : Parts {
  Workspace(const AttentionGeometry& g, int64_t lanes)
      : key_step(RowStep(g.dim)),
        value_step(RowStep(g.value_dim)),
        q_step(RoundUp(g.dim, lanes)),
        dy_step(RoundUp(g.value_dim, lanes)),
        q(Take(g.dim * kTileQueries)),
        q_rows(Take(q_step * kTileQueries)),
        dy(Take(g.value_dim * kTileQueries)),
        dy_rows(Take(dy_step * kTileQueries)),
        dq(Take(key_step * kTileQueries)),
        keys(Take(kTileKeys * key_step)),
        values(Take(kTileKeys * value_step)),
        scores(Take(kTileKeys * kTileQueries)),
        products(Take(kTileKeys * kTileQueries)),
        factors(Take(g.has_dropout ? kTileKeys * kTileQueries : 0)),
        y_row(Take(g.value_dim)) {}

  int64_t key_step, value_step, q_step, dy_step;
  int64_t q, q_rows;    ///< times scale; D x columns, and queries x D
  int64_t dy, dy_rows;  ///< E x columns, and queries x E
  int64_t dq;           ///< D x columns, before it is multiplied by scale
  int64_t keys, values;
  int64_t scores;    ///< then the weights of v
  int64_t products;  ///< dy · v, then the gradients of the scores
  int64_t factors, y_row;
};

/// The heads of keys whose scores have the same mask; without a gradient of the mask single heads.
class Teams {
 public:
  explicit Teams(const AttentionBackwardSpec& spec) {
    const bool joins_heads = spec.need_mask() && spec.dmask[1] == 1;
    masks_ = spec.need_mask() ? spec.mask_batch : spec.batch;
    columns_ = joins_heads ? 1 : spec.kv_heads;
    member_columns_ = joins_heads ? spec.kv_heads : 1;
    kv_heads_ = spec.kv_heads;
    count_ = masks_ * columns_;
    size_ = masks_ == 0 ? 0 : spec.batch / masks_ * member_columns_;
  }
  int64_t count() const { return count_; }
  int64_t size() const { return size_; }
  /// The head of keys, counted over all batches.
  int64_t Head(int64_t team, int64_t member) const {
    const int64_t b = team / columns_ + member / member_columns_ * masks_;
    return b * kv_heads_ + team % columns_ + member % member_columns_;
  }

 private:
  int64_t masks_, size_, count_, columns_, member_columns_, kv_heads_;
};

template <class T, int64_t kLanes>
class BackwardPlan final : public Plan {
 public:
  explicit BackwardPlan(const AttentionBackwardSpec& spec)
      : Plan("cpu"),
        spec_(spec),
        place_(spec, kLanes),
        threads_(NumThreads()),
        heads_(spec.batch * spec.kv_heads),
        tiles_(Problem::TilesOfHead(spec)),
        parts_(SplitWork(heads_, tiles_)),
        teams_(spec),
        shares_(SplitWork(teams_.count(), teams_.size())) {
    // Products write whole rows of keys, in fours.
    if (spec.need_k) dk_size_ = RoundUp(spec.keys, 4) * place_.q_step;
    if (spec.need_v) dv_size_ = RoundUp(spec.keys, 4) * place_.dy_step;
    if (spec.need_mask())
      mask_ = {spec.dmask[1] == 1 ? 1 : spec.group(), spec.dmask[3], spec.dmask[2]};
  }
  std::string Describe() const override { return "cpu attention by tiles"; }
  size_t workspace_bytes() const override {
    const int64_t sums = parts_ == 1 ? threads_ : heads_ * parts_;
    return static_cast<size_t>(threads_ * place_.size() + sums * sums_size() +
                               teams_.count() * copies() * mask_.size()) *
           sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, kLanes);
    auto* tiles = static_cast<float*>(execution.workspace);
    float* all_sums = tiles + threads_ * place_.size();
    float* mask_sums = all_sums + (parts_ == 1 ? threads_ : heads_ * parts_) * sums_size();
    const int64_t threads = ThreadsFor(spec_.multiply_adds(), threads_);
    ForEachTask(teams_.count() * copies(), threads, [&](int64_t task, int64_t slot) {
      const int64_t part = task % parts_;
      float* added = mask_sums + task * mask_.size();
      std::fill_n(added, mask_.size(), 0.0f);
      for (int64_t member = task / parts_ % shares_; member < teams_.size(); member += shares_) {
        const int64_t head = teams_.Head(task / copies(), member);
        float* sums = all_sums + (parts_ == 1 ? slot : head * parts_ + part) * sums_size();
        std::fill_n(sums, sums_size(), 0.0f);
        for (int64_t t = part; t < tiles_; t += parts_) {
          Tile tile;
          problem.Locate(head, t, &tile);
          RunTile(execution, problem, tile, tiles + slot * place_.size(), sums, sums + dk_size_,
                  added);
        }
        if (parts_ == 1) StoreSums(execution, head, sums);
      }
    });
    if (parts_ > 1)
      ForEachTask(heads_, threads, [&](int64_t head, int64_t) {
        StoreSums(execution, head, all_sums + head * parts_ * sums_size());
      });
    if (spec_.need_mask())
      ForEachTask(teams_.count(), threads, [&](int64_t team, int64_t) {
        mask_.Store(mask_sums + team * copies() * mask_.size(), copies(), mask_.size(),
                    execution.out<float>(3) + team * mask_.size());
      });
  }

 private:
  int64_t sums_size() const { return dk_size_ + dv_size_; }
  /// Tasks of a team.
  int64_t copies() const { return shares_ * parts_; }

  void RunTile(const Execution& execution, const Problem& problem, const Tile& tile,
               float* workspace, float* dk, float* dv, float* added) const {
    const AttentionRows<const T> k(execution.inputs[2]), v(execution.inputs[3]);
    const int64_t columns = tile.columns, key_step = place_.key_step,
                  value_step = place_.value_step;
    float *q = workspace + place_.q, *q_rows = workspace + place_.q_rows;
    float *dy = workspace + place_.dy, *dy_rows = workspace + place_.dy_rows;
    float *keys = workspace + place_.keys, *values = workspace + place_.values;
    float *scores = workspace + place_.scores, *products = workspace + place_.products;
    float *dq = workspace + place_.dq, *factors = workspace + place_.factors;
    float logsumexp[kTileQueries] = {}, along[kTileQueries] = {};
    LoadQueries<T>(AttentionRows<const T>(execution.inputs[1]), tile, spec_.dim, problem.scale(), q,
                   q_rows, place_.q_step, nullptr);
    LoadQueries<T>(AttentionRows<const T>(execution.inputs[0]), tile, spec_.value_dim, 1.0f, dy,
                   dy_rows, place_.dy_step, nullptr);
    Statistics(execution, tile, dy_rows, workspace + place_.y_row, logsumexp, along);
    if (tile.any_keys == 0) std::fill_n(dq, spec_.dim * columns, 0.0f);
    for (int64_t first = 0; first < tile.any_keys; first += kTileKeys) {
      const int64_t n = std::min(kTileKeys, tile.any_keys - first), padded = RoundUp(n, 4);
      PackRows(k.At(tile.batch, tile.kv_head, first), k.row, n, padded, spec_.dim, keys, key_step);
      PackRows(v.At(tile.batch, tile.kv_head, first), v.row, n, padded, spec_.value_dim, values,
               value_step);
      Multiply<kLanes>(padded, columns, spec_.dim, {keys, key_step, 1}, q, columns, scores, columns,
                       false);
      problem.Mask(tile, first, n, scores);
      Multiply<kLanes>(padded, columns, spec_.value_dim, {values, value_step, 1}, dy, columns,
                       products, columns, false);
      if (spec_.has_dropout) problem.DropoutFactors(tile, first, n, factors);
      WeightsAndGradients(scores, products, spec_.has_dropout ? factors : nullptr, n, columns,
                          logsumexp, along);
      if (spec_.need_mask())
        mask_.Add(tile, tile.kv_head * spec_.group(), first, n, products, added);
      // The rows behind the keys may belong to keys that these queries do not use.
      std::fill(scores + n * columns, scores + padded * columns, 0.0f);
      std::fill(products + n * columns, products + padded * columns, 0.0f);
      if (spec_.need_v)
        Multiply<kLanes>(padded, place_.dy_step, tile.count, {scores, columns, 1}, dy_rows,
                         place_.dy_step, dv + first * place_.dy_step, place_.dy_step, true);
      if (spec_.need_k)
        Multiply<kLanes>(padded, place_.q_step, tile.count, {products, columns, 1}, q_rows,
                         place_.q_step, dk + first * place_.q_step, place_.q_step, true);
      if (spec_.need_q)
        Multiply<kLanes>(RoundUp(spec_.dim, 4), columns, n, {keys, 1, key_step}, products, columns,
                         dq, columns, first > 0);
    }
    if (!spec_.need_q) return;
    float scale[kTileQueries];
    std::fill_n(scale, kTileQueries, problem.scale());
    StoreQueries<T>(dq, tile, spec_.dim, scale, AttentionRows<T>(execution.outputs[0]));
  }

  /// logsumexp, 0 for queries without keys, and Σ dy · y, of the queries of a tile.
  void Statistics(const Execution& execution, const Tile& tile, const float* dy_rows, float* y_row,
                  float* logsumexp, float* along) const {
    const AttentionRows<const T> y(execution.inputs[5]);
    for (int64_t c = 0; c < tile.count; ++c) {
      const float log_sum = execution.in<float>(
          6)[(tile.batch * spec_.heads + tile.head[c]) * spec_.queries + tile.query[c]];
      logsumexp[c] = log_sum == -kInf ? 0 : log_sum;
      PackRows(y.At(tile.batch, tile.head[c], tile.query[c]), 0, 1, 1, spec_.value_dim, y_row,
               spec_.value_dim);
      along[c] = Dot(dy_rows + c * place_.dy_step, y_row, spec_.value_dim);
    }
  }

  /// Adds the parts of one head, which begin at `sums`, and stores its dk and dv.
  void StoreSums(const Execution& execution, int64_t head, const float* sums) const {
    const int64_t b = head / spec_.kv_heads, h = head % spec_.kv_heads;
    for (int64_t j = 0; j < spec_.keys; ++j) {
      if (spec_.need_k)
        StoreSum(sums + j * place_.q_step, parts_, sums_size(), spec_.dim,
                 AttentionRows<T>(execution.outputs[1]).At(b, h, j));
      if (spec_.need_v)
        StoreSum(sums + dk_size_ + j * place_.dy_step, parts_, sums_size(), spec_.value_dim,
                 AttentionRows<T>(execution.outputs[2]).At(b, h, j));
    }
  }

  AttentionBackwardSpec spec_;
  Workspace place_;
  int64_t threads_, heads_, tiles_;
  int64_t parts_;  ///< of the tiles of a head
  Teams teams_;
  int64_t shares_;  ///< of the heads of a team
  int64_t dk_size_ = 0, dv_size_ = 0;
  MaskSums mask_{};  ///< of a team
};

template <class T>
PlanPtr Make(const AttentionBackwardSpec& spec, int64_t lanes) {
  if (lanes == 16) return std::make_shared<BackwardPlan<T, 16>>(spec);
  return std::make_shared<BackwardPlan<T, 8>>(spec);
}

}  // namespace

PlanPtr MakePlan(const AttentionBackwardSpec& spec, int64_t lanes) {
  return spec.dtype == kBFloat16 ? Make<BFloat16>(spec, lanes) : Make<float>(spec, lanes);
}

}  // namespace singa::cpu::attention
