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
#include "backend/cpu/attention/factors.h"
#include "backend/cpu/attention/tile.h"
#include "backend/cpu/linalg/pair_product.h"
#include "backend/cpu/linalg/tile_product.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <class T, int64_t kVectorLanes>
class BackwardFloats : public FloatFactors<T, kVectorLanes> {
  using Base = FloatFactors<T, kVectorLanes>;
  using Base::dim_, Base::value_dim_, Base::q_step_, Base::key_step_, Base::value_step_;
  using Base::keys_, Base::q_rows_, Base::values_;

 public:
  using Base::kLanes;

  BackwardFloats(const AttentionGeometry& g, Parts* parts)
      : Base(g, RoundUp(g.dim, kLanes), parts),
        dy_step_(RoundUp(g.value_dim, kLanes)),
        dy_(parts->Take(g.value_dim * kTileQueries)),
        dy_rows_(parts->Take(dy_step_ * kTileQueries)) {}

  void LoadQueries(const AttentionRows<const T>& q, const AttentionRows<const T>& dy,
                   const Tile& tile, float scale, float* workspace) const {
    Base::LoadQueries(q, tile, scale, workspace);
    attention::LoadQueries<T>(dy, tile, value_dim_, 1.0f, workspace + dy_rows_, dy_step_,
                              workspace + dy_);
  }
  /// products (keys, in fours, x columns) = v · dy
  void MultiplyValues(const Tile& tile, int64_t n, float* workspace, float* products) const {
    Multiply<kLanes>(RoundUp(n, 4), tile.columns, value_dim_, {workspace + values_, value_step_, 1},
                     workspace + dy_, tile.columns, products, tile.columns, false);
  }
  /// Called before those below, with weights and gradients of n keys.
  void LoadWeights(const Tile& tile, int64_t n, float* weights, float* gradients, float*) const {
    // The rows behind the keys may belong to keys that these queries do not use.
    for (float* x : {weights, gradients})
      std::fill(x + n * tile.columns, x + RoundUp(n, 4) * tile.columns, 0.0f);
  }
  /// dv (keys x dv_step) += weights · dy
  void AddToValues(const Tile& tile, int64_t n, const float* weights, float* workspace,
                   float* dv) const {
    Multiply<kLanes>(RoundUp(n, 4), dy_step_, tile.count, {weights, tile.columns, 1},
                     workspace + dy_rows_, dy_step_, dv, dy_step_, true);
  }
  /// dk (keys x dk_step) += scale · gradients · q
  void AddToKeys(const Tile& tile, int64_t n, float, const float* gradients, float* workspace,
                 float* dk) const {
    Multiply<kLanes>(RoundUp(n, 4), q_step_, tile.count, {gradients, tile.columns, 1},
                     workspace + q_rows_, q_step_, dk, q_step_, true);
  }
  /// dq (D x columns) = kᵀ · gradients, added to what is there if `add`.
  void AddToQueries(const Tile& tile, int64_t n, const float* gradients, bool add, float* workspace,
                    float* dq) const {
    Multiply<kLanes>(RoundUp(dim_, 4), tile.columns, n, {workspace + keys_, 1, key_step_},
                     gradients, tile.columns, dq, tile.columns, add);
  }

  int64_t dk_step() const { return q_step_; }
  int64_t dv_step() const { return dy_step_; }

 private:
  int64_t dy_step_;
  int64_t dy_, dy_rows_;  ///< E x columns, and queries x E
};

class BackwardPairs : public PairFactors {
 public:
  BackwardPairs(const AttentionGeometry& g, const PairLoops& loops, Parts* parts)
      : PairFactors(g, loops, RowStep(CeilDivide(g.value_dim, 2)), parts),
        value_pairs_(CeilDivide(g.value_dim, 2)),
        value_step_(RowStep(value_pairs_)),
        q_step_(RoundUp(g.dim, kLanes)),
        dy_step_(RoundUp(g.value_dim, kLanes)),
        q_joined_(parts->Take(q_step_ * kTileQueries / 2)),
        dy_(parts->Take(value_pairs_ * kTileQueries)),
        dy_joined_(parts->Take(dy_step_ * kTileQueries / 2)),
        keys_joined_(parts->Take(kTileKeys / 2 * q_step_)),
        values_(parts->Take(kTileKeys * value_step_)),
        weights_(parts->Take(kTileKeys * kTileQueries / 2)),
        gradients_(parts->Take(kTileKeys * kTileQueries / 2)),
        gradients_joined_(parts->Take(kTileKeys * kTileQueries / 2)) {}

  void LoadQueries(const AttentionRows<const BFloat16>& q, const AttentionRows<const BFloat16>& dy,
                   const Tile& tile, float scale, float* workspace) const {
    uint32_t* rows = Words(workspace + rows_);
    const auto* numbers = reinterpret_cast<const BFloat16*>(rows);
    PairFactors::LoadQueries(q, tile, scale, workspace);
    JoinRows(numbers, 2 * key_step_, tile.count, dim_, Words(workspace + q_joined_), q_step_);
    LoadQueryWords(dy, tile, value_dim_, rows, value_step_, Words(workspace + dy_));
    JoinRows(numbers, 2 * value_step_, tile.count, value_dim_, Words(workspace + dy_joined_),
             dy_step_);
  }
  void LoadKeys(const AttentionRows<const BFloat16>& k, const AttentionRows<const BFloat16>& v,
                const Tile& tile, int64_t first, int64_t n, float* workspace) const {
    const BFloat16* from = k.At(tile.batch, tile.kv_head, first);
    CopyKeys(from, k.row, n, workspace);
    JoinRows(from, k.row, n, dim_, Words(workspace + keys_joined_), q_step_);
    CopyRows(v.At(tile.batch, tile.kv_head, first), v.row, n, RoundUp(n, 4), value_dim_,
             Words(workspace + values_), value_step_);
  }
  void MultiplyValues(const Tile& tile, int64_t n, float* workspace, float* products) const {
    loops_.multiply(
        RoundUp(n, 4), tile.columns, value_pairs_, {Words(workspace + values_), value_step_, 1},
        {Words(workspace + dy_), 16, tile.columns}, {products, tile.columns, 16, 1, false});
  }
  void LoadWeights(const Tile& tile, int64_t n, float* weights, float* gradients,
                   float* workspace) const {
    for (float* x : {weights, gradients}) {
      std::fill(x + n * tile.columns, x + RoundUp(n, 4) * tile.columns, 0.0f);
      // The partner of the last query, if that has none: its mask may have made it infinite.
      if (tile.count % 2 == 1)
        for (int64_t j = 0; j < n; ++j) x[j * tile.columns + tile.count] = 0;
    }
    loops_.round(weights, RoundUp(n, 4) * tile.columns, Words(workspace + weights_));
    loops_.round(gradients, RoundUp(n, 4) * tile.columns, Words(workspace + gradients_));
    loops_.round_rows(gradients, n, tile.columns, Words(workspace + gradients_joined_));
  }
  void AddToValues(const Tile& tile, int64_t n, const float*, float* workspace, float* dv) const {
    AddRows(tile, n, workspace + weights_, workspace + dy_joined_, dy_step_, 1, dv);
  }
  void AddToKeys(const Tile& tile, int64_t n, float scale, const float*, float* workspace,
                 float* dk) const {
    AddRows(tile, n, workspace + gradients_, workspace + q_joined_, q_step_, scale, dk);
  }
  void AddToQueries(const Tile& tile, int64_t n, const float*, bool add, float* workspace,
                    float* dq) const {
    loops_.multiply(RoundUp(dim_, 4), tile.columns, CeilDivide(n, 2),
                    {Words(workspace + keys_joined_), 1, q_step_},
                    {Words(workspace + gradients_joined_), 16, tile.columns},
                    {dq, tile.columns, 16, 1, add});
  }

  int64_t dk_step() const { return q_step_; }
  int64_t dv_step() const { return dy_step_; }

 private:
  /// sums (keys x step) += factor · left (keys x queries) · right (queries x step)
  void AddRows(const Tile& tile, int64_t n, float* left, float* right, int64_t step, float factor,
               float* sums) const {
    loops_.multiply(RoundUp(n, 4), step, CeilDivide(tile.count, 2),
                    {Words(left), tile.columns / 2, 1}, {Words(right), 16, step},
                    {sums, step, 16, factor, true});
  }

  int64_t value_pairs_, value_step_, q_step_, dy_step_;
  // Of two queries or keys: "joined".
  int64_t q_joined_, dy_, dy_joined_, keys_joined_, values_;
  int64_t weights_, gradients_, gradients_joined_;
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

template <class Factors>
class BackwardPlan final : public Plan {
  using T = typename Factors::Type;

 public:
  template <class... Loops>
  explicit BackwardPlan(const AttentionBackwardSpec& spec, const Loops&... loops)
      : Plan("cpu"),
        spec_(spec),
        factors_(spec, loops..., &place_),
        scores_(place_.Take(kTileKeys * kTileQueries)),
        products_(place_.Take(kTileKeys * kTileQueries)),
        dropout_(place_.Take(spec.has_dropout ? kTileKeys * kTileQueries : 0)),
        dq_(place_.Take(RoundUp(spec.dim, 4) * kTileQueries)),
        rows_(place_.Take(RowStep(spec.dim) * kTileQueries)),
        threads_(NumThreads()),
        heads_(spec.batch * spec.kv_heads),
        tiles_(Problem::TilesOfHead(spec)),
        parts_(SplitWork(heads_, tiles_)),
        teams_(spec),
        shares_(SplitWork(teams_.count(), teams_.size())) {
    // Products write whole rows of keys, in fours.
    if (spec.need_k) dk_size_ = RoundUp(spec.keys, 4) * factors_.dk_step();
    if (spec.need_v) dv_size_ = RoundUp(spec.keys, 4) * factors_.dv_step();
    if (spec.need_mask())
      mask_ = {spec.dmask[1] == 1 ? 1 : spec.group(), spec.dmask[3], spec.dmask[2]};
  }
  std::string Describe() const override { return Factors::Name(); }
  double factor_error() const override { return Factors::kError; }
  size_t workspace_bytes() const override {
    const int64_t sums = parts_ == 1 ? threads_ : heads_ * parts_;
    return static_cast<size_t>(threads_ * place_.size() + sums * sums_size() +
                               teams_.count() * copies() * mask_.size()) *
           sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, Factors::kLanes);
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
    const AttentionRows<const T> k(execution.inputs[2]), v(execution.inputs[3]),
        dy(execution.inputs[0]);
    const int64_t columns = tile.columns;
    float *scores = workspace + scores_, *products = workspace + products_;
    float *dq = workspace + dq_, *factors = workspace + dropout_;
    float logsumexp[kTileQueries] = {}, along[kTileQueries] = {};
    factors_.LoadQueries(AttentionRows<const T>(execution.inputs[1]), dy, tile, problem.scale(),
                         workspace);
    Statistics(execution, tile, logsumexp, along);
    if (tile.any_keys == 0) std::fill_n(dq, spec_.dim * columns, 0.0f);
    for (int64_t first = 0; first < tile.any_keys; first += kTileKeys) {
      const int64_t n = std::min(kTileKeys, tile.any_keys - first);
      factors_.LoadKeys(k, v, tile, first, n, workspace);
      factors_.Score(tile, n, problem.scale(), workspace, scores);
      problem.Mask(tile, first, n, scores);
      factors_.MultiplyValues(tile, n, workspace, products);
      if (spec_.has_dropout) problem.DropoutFactors(tile, first, n, factors);
      WeightsAndGradients(scores, products, spec_.has_dropout ? factors : nullptr, n, columns,
                          logsumexp, along);
      if (spec_.need_mask())
        mask_.Add(tile, tile.kv_head * spec_.group(), first, n, products, added);
      factors_.LoadWeights(tile, n, scores, products, workspace);
      if (spec_.need_v)
        factors_.AddToValues(tile, n, scores, workspace, dv + first * factors_.dv_step());
      if (spec_.need_k)
        factors_.AddToKeys(tile, n, problem.scale(), products, workspace,
                           dk + first * factors_.dk_step());
      if (spec_.need_q) factors_.AddToQueries(tile, n, products, first > 0, workspace, dq);
    }
    if (!spec_.need_q) return;
    float scale[kTileQueries];
    std::fill_n(scale, kTileQueries, problem.scale());
    StoreQueries<T>(dq, tile, spec_.dim, scale, workspace + rows_,
                    AttentionRows<T>(execution.outputs[0]));
  }

  /// logsumexp, 0 for queries without keys, and Σ dy · y, of the queries of a tile.
  void Statistics(const Execution& execution, const Tile& tile, float* logsumexp,
                  float* along) const {
    const AttentionRows<const T> y(execution.inputs[5]), dy(execution.inputs[0]);
    for (int64_t c = 0; c < tile.count; ++c) {
      const int64_t h = tile.head[c], i = tile.query[c];
      const float log_sum =
          execution.in<float>(6)[(tile.batch * spec_.heads + h) * spec_.queries + i];
      logsumexp[c] = log_sum == -kInf ? 0 : log_sum;
      along[c] = Dot(dy.At(tile.batch, h, i), y.At(tile.batch, h, i), spec_.value_dim);
    }
  }

  /// Adds the parts of one head, which begin at `sums`, and stores its dk and dv.
  void StoreSums(const Execution& execution, int64_t head, const float* sums) const {
    const int64_t b = head / spec_.kv_heads, h = head % spec_.kv_heads;
    for (int64_t j = 0; j < spec_.keys; ++j) {
      if (spec_.need_k)
        StoreSum(sums + j * factors_.dk_step(), parts_, sums_size(), spec_.dim,
                 AttentionRows<T>(execution.outputs[1]).At(b, h, j));
      if (spec_.need_v)
        StoreSum(sums + dk_size_ + j * factors_.dv_step(), parts_, sums_size(), spec_.value_dim,
                 AttentionRows<T>(execution.outputs[2]).At(b, h, j));
    }
  }

  AttentionBackwardSpec spec_;
  Parts place_;  ///< of a thread's tiles
  Factors factors_;
  int64_t scores_;    ///< then the weights of v
  int64_t products_;  ///< dy · v, then the gradients of the scores
  int64_t dropout_;
  int64_t dq_;    ///< D x columns, before it is multiplied by scale
  int64_t rows_;  ///< dq
  int64_t threads_, heads_, tiles_;
  int64_t parts_;  ///< of the tiles of a head
  Teams teams_;
  int64_t shares_;  ///< of the heads of a team
  int64_t dk_size_ = 0, dv_size_ = 0;
  MaskSums mask_{};  ///< of a team
};

}  // namespace

PlanPtr MakePlan(const AttentionBackwardSpec& spec, int64_t lanes) {
  const auto make = [&]<class T>() -> PlanPtr {
    if (lanes == 16) return std::make_shared<BackwardPlan<BackwardFloats<T, 16>>>(spec);
    return std::make_shared<BackwardPlan<BackwardFloats<T, 8>>>(spec);
  };
  return spec.dtype == kBFloat16 ? make.template operator()<BFloat16>()
                                 : make.template operator()<float>();
}

PlanPtr MakePairPlan(const AttentionBackwardSpec& spec, const PairLoops& loops) {
  return std::make_shared<BackwardPlan<BackwardPairs>>(spec, loops);
}

}  // namespace singa::cpu::attention
