// Attention by tiles of queries and keys (Dao et al. 2022): each thread takes a tile of queries,
// and goes through the keys once, with a running maximum and sum for each query (Milakov and
// Gimelshein 2018). Memory besides the results is a few tiles for each thread.

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
class ForwardFloats : public FloatFactors<T, kVectorLanes> {
  using Base = FloatFactors<T, kVectorLanes>;
  using Base::value_dim_, Base::values_, Base::value_step_;

 public:
  ForwardFloats(const AttentionGeometry& g, Parts* parts) : Base(g, RowStep(g.dim), parts) {}

  /// sums (E x columns) = vᵀ · weights, added to what is there if `add`.
  void AddValues(const Tile& tile, int64_t n, const float* weights, bool add, float* workspace,
                 float* sums) const {
    Multiply<kVectorLanes>(RoundUp(value_dim_, 4), tile.columns, n,
                           {workspace + values_, 1, value_step_}, weights, tile.columns, sums,
                           tile.columns, add);
  }
};

class ForwardPairs : public PairFactors {
 public:
  ForwardPairs(const AttentionGeometry& g, const PairLoops& loops, Parts* parts)
      : PairFactors(g, loops, 0, parts),
        value_step_(RowStep(g.value_dim)),
        values_(parts->Take(kTileKeys / 2 * value_step_)),
        weights_(parts->Take(kTileKeys / 2 * kTileQueries)) {}

  void LoadKeys(const AttentionRows<const BFloat16>& k, const AttentionRows<const BFloat16>& v,
                const Tile& tile, int64_t first, int64_t n, float* workspace) const {
    CopyKeys(k.At(tile.batch, tile.kv_head, first), k.row, n, workspace);
    JoinRows(v.At(tile.batch, tile.kv_head, first), v.row, n, value_dim_,
             Words(workspace + values_), value_step_);
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
  int64_t value_step_, values_, weights_;
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
    if (lanes == 16) return std::make_shared<ForwardPlan<ForwardFloats<T, 16>>>(spec);
    return std::make_shared<ForwardPlan<ForwardFloats<T, 8>>>(spec);
  };
  return spec.dtype == kBFloat16 ? make.template operator()<BFloat16>()
                                 : make.template operator()<float>();
}

PlanPtr MakePairPlan(const AttentionForwardSpec& spec, const PairLoops& loops) {
  return std::make_shared<ForwardPlan<ForwardPairs>>(spec, loops);
}

}  // namespace singa::cpu::attention
