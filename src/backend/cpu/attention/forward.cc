// Attention by tiles of queries and keys (Dao et al. 2022): each thread takes a tile of queries,
// and goes through the keys once, with a running maximum and sum for each query (Milakov and
// Gimelshein 2018). Memory besides the results is a few tiles for each thread.

#include <limits>
#include <memory>
#include <string>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/tile.h"
#include "backend/cpu/linalg/pair_product.h"
#include "backend/cpu/linalg/tile_product.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// The factors of products as float32 numbers, in the workspace of a thread.
template <class T, int64_t kVectorLanes>
class FloatFactors {
 public:
  using Type = T;
  static constexpr int64_t kLanes = kVectorLanes;
  static constexpr double kError = 0;

  FloatFactors(const AttentionGeometry& g, Parts* parts)
      : dim_(g.dim),
        value_dim_(g.value_dim),
        q_step_(RowStep(g.dim)),
        key_step_(RowStep(g.dim)),
        value_step_(RowStep(g.value_dim)),
        rows_(parts->Take(q_step_ * kTileQueries)),
        queries_(parts->Take(g.dim * kTileQueries)),
        keys_(parts->Take(kTileKeys * key_step_)),
        values_(parts->Take(kTileKeys * value_step_)) {}
  static const char* Name() { return "cpu attention by tiles"; }

  void LoadQueries(const AttentionRows<const T>& q, const Tile& tile, float scale,
                   float* workspace) const {
    attention::LoadQueries<T>(q, tile, dim_, scale, workspace + rows_, q_step_,
                              workspace + queries_);
  }
  /// n keys and values from `first` on.
  void LoadKeys(const AttentionRows<const T>& k, const AttentionRows<const T>& v, const Tile& tile,
                int64_t first, int64_t n, float* workspace) const {
    PackRows(k.At(tile.batch, tile.kv_head, first), k.row, n, RoundUp(n, 4), dim_,
             workspace + keys_, key_step_);
    PackRows(v.At(tile.batch, tile.kv_head, first), v.row, n, n, value_dim_, workspace + values_,
             value_step_);
  }
  /// scores (keys, in fours, x columns) = scale · k · q
  void Score(const Tile& tile, int64_t n, float, float* workspace, float* scores) const {
    Multiply<kLanes>(RoundUp(n, 4), tile.columns, dim_, {workspace + keys_, key_step_, 1},
                     workspace + queries_, tile.columns, scores, tile.columns, false);
  }
  /// sums (E x columns) = vᵀ · weights, added to what is there if `add`.
  void AddValues(const Tile& tile, int64_t n, const float* weights, bool add, float* workspace,
                 float* sums) const {
    Multiply<kLanes>(RoundUp(value_dim_, 4), tile.columns, n, {workspace + values_, 1, value_step_},
                     weights, tile.columns, sums, tile.columns, add);
  }

 private:
  int64_t dim_, value_dim_;
  int64_t q_step_, key_step_, value_step_;
  int64_t rows_;     ///< q times scale
  int64_t queries_;  ///< turned (D x columns)
  int64_t keys_, values_;
};

/// The same as pairs of bfloat16 numbers. Weights are rounded to them.
class PairFactors {
 public:
  using Type = BFloat16;
  static constexpr int64_t kLanes = 16;
  static constexpr double kError = kPairError;

  PairFactors(const AttentionGeometry& g, const PairLoops& loops, Parts* parts)
      : loops_(loops),
        dim_(g.dim),
        value_dim_(g.value_dim),
        pairs_(CeilDivide(g.dim, 2)),
        key_step_(RowStep(pairs_)),
        value_step_(RowStep(g.value_dim)),
        rows_(parts->Take(key_step_ * kTileQueries)),
        queries_(parts->Take(pairs_ * kTileQueries)),
        keys_(parts->Take(kTileKeys * key_step_)),
        values_(parts->Take(kTileKeys / 2 * value_step_)),
        weights_(parts->Take(kTileKeys / 2 * kTileQueries)) {}
  static const char* Name() { return "cpu attention by tiles, bfloat16 products"; }

  void LoadQueries(const AttentionRows<const BFloat16>& q, const Tile& tile, float,
                   float* workspace) const {
    LoadQueryWords(q, tile, dim_, Words(workspace + rows_), key_step_, Words(workspace + queries_));
  }
  void LoadKeys(const AttentionRows<const BFloat16>& k, const AttentionRows<const BFloat16>& v,
                const Tile& tile, int64_t first, int64_t n, float* workspace) const {
    CopyRows(k.At(tile.batch, tile.kv_head, first), k.row, n, RoundUp(n, 4), dim_,
             Words(workspace + keys_), key_step_);
    JoinRows(v.At(tile.batch, tile.kv_head, first), v.row, n, value_dim_,
             Words(workspace + values_), value_step_);
  }
  void Score(const Tile& tile, int64_t n, float scale, float* workspace, float* scores) const {
    loops_.multiply(RoundUp(n, 4), tile.columns, pairs_, {Words(workspace + keys_), key_step_, 1},
                    {Words(workspace + queries_), 16, tile.columns},
                    {scores, tile.columns, 16, scale, false});
  }
  void AddValues(const Tile& tile, int64_t n, const float* weights, bool add, float* workspace,
                 float* sums) const {
    uint32_t* words = Words(workspace + weights_);
    loops_.round_rows(weights, n, tile.columns, words);
    loops_.multiply(RoundUp(value_dim_, 4), tile.columns, CeilDivide(n, 2),
                    {Words(workspace + values_), 1, value_step_}, {words, 16, tile.columns},
                    {sums, tile.columns, 16, 1, add});
  }

 private:
  const PairLoops& loops_;
  int64_t dim_, value_dim_, pairs_;
  int64_t key_step_, value_step_;
  int64_t rows_;     ///< q
  int64_t queries_;  ///< turned (pairs x columns)
  int64_t keys_, values_, weights_;
};

template <class Factors>
class ForwardPlan final : public Plan {
  using T = typename Factors::Type;

 public:
  template <class... Loops>
  explicit ForwardPlan(const AttentionForwardSpec& spec, const Loops&... loops)
      : Plan("cpu"),
        spec_(spec),
        threads_(NumThreads()),
        factors_(spec, loops..., &parts_),
        scores_(parts_.Take(kTileKeys * kTileQueries)),
        sums_(parts_.Take(RoundUp(spec.value_dim, 4) * kTileQueries)),
        rows_(parts_.Take(RowStep(spec.value_dim) * kTileQueries)),
        dropout_(parts_.Take(spec.has_dropout ? kTileKeys * kTileQueries : 0)) {}
  std::string Describe() const override { return Factors::Name(); }
  double factor_error() const override { return Factors::kError; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * parts_.size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, Factors::kLanes);
    const int64_t tiles = Problem::TilesOfHead(spec_);
    const int64_t tasks = spec_.batch * spec_.kv_heads * tiles;
    ForEachTask(tasks, ThreadsFor(spec_.multiply_adds(), threads_),
                [&](int64_t task, int64_t slot) {
                  Tile tile;
                  // The last tiles first: where causal, they have the most keys.
                  problem.Locate(task / tiles, tiles - 1 - task % tiles, &tile);
                  RunTile(execution, problem, tile,
                          static_cast<float*>(execution.workspace) + slot * parts_.size());
                });
  }

 private:
  void RunTile(const Execution& execution, const Problem& problem, const Tile& tile,
               float* workspace) const {
    const AttentionRows<const T> k(execution.inputs[1]), v(execution.inputs[2]);
    const int64_t columns = tile.columns;
    float *scores = workspace + scores_, *sums = workspace + sums_;
    float most[kTileQueries], sum[kTileQueries] = {}, factor[kTileQueries];
    std::fill_n(most, kTileQueries, -kInf);
    factors_.LoadQueries(AttentionRows<const T>(execution.inputs[0]), tile, problem.scale(),
                         workspace);
    if (tile.any_keys == 0) std::fill_n(sums, spec_.value_dim * columns, 0.0f);
    for (int64_t first = 0; first < tile.any_keys; first += kTileKeys) {
      const int64_t n = std::min(kTileKeys, tile.any_keys - first);
      factors_.LoadKeys(k, v, tile, first, n, workspace);
      factors_.Score(tile, n, problem.scale(), workspace, scores);
      problem.Mask(tile, first, n, scores);
      if (UpdateSoftmax(scores, n, columns, most, sum, factor) && first > 0)
        ScaleColumns(sums, spec_.value_dim, columns, factor);
      if (spec_.has_dropout) {
        problem.DropoutFactors(tile, first, n, workspace + dropout_);
        MultiplyBy(workspace + dropout_, n * columns, scores);
      }
      factors_.AddValues(tile, n, scores, first > 0, workspace, sums);
    }
    for (int64_t c = 0; c < tile.count; ++c) {
      factor[c] = sum[c] == 0 ? 0 : 1 / sum[c];
      execution.out<float>(
          1)[(tile.batch * spec_.heads + tile.head[c]) * spec_.queries + tile.query[c]] =
          LogSumExp(most[c], sum[c]);
    }
    StoreQueries<T>(sums, tile, spec_.value_dim, factor, workspace + rows_,
                    AttentionRows<T>(execution.outputs[0]));
  }

  AttentionForwardSpec spec_;
  int64_t threads_;
  Parts parts_;  ///< of a thread's workspace
  Factors factors_;
  int64_t scores_;
  int64_t sums_;  ///< y (E x columns), before it is divided by the sums of weights
  int64_t rows_;  ///< y
  int64_t dropout_;
};

}  // namespace

PlanPtr MakePlan(const AttentionForwardSpec& spec, int64_t lanes) {
  const auto make = [&]<class T>() -> PlanPtr {
    if (lanes == 16) return std::make_shared<ForwardPlan<FloatFactors<T, 16>>>(spec);
    return std::make_shared<ForwardPlan<FloatFactors<T, 8>>>(spec);
  };
  return spec.dtype == kBFloat16 ? make.template operator()<BFloat16>()
                                 : make.template operator()<float>();
}

PlanPtr MakePairPlan(const AttentionForwardSpec& spec, const PairLoops& loops) {
  return std::make_shared<ForwardPlan<PairFactors>>(spec, loops);
}

}  // namespace singa::cpu::attention
