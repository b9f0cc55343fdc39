// Attention by tiles of queries and keys (Dao et al. 2022): each thread takes a tile of queries,
// and goes through the keys once, with a running maximum and sum for each query (Milakov and
// Gimelshein 2018). Memory besides the results is a few tiles for each thread.

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
  explicit Workspace(const AttentionGeometry& g)
      : key_step(RowStep(g.dim)),
        value_step(RowStep(g.value_dim)),
        queries(Take(g.dim * kTileQueries)),
        keys(Take(kTileKeys * key_step)),
        values(Take(kTileKeys * value_step)),
        scores(Take(kTileKeys * kTileQueries)),
        sums(Take(value_step * kTileQueries)),
        factors(Take(g.has_dropout ? kTileKeys * kTileQueries : 0)),
        row(Take(g.dim)) {}

  int64_t key_step, value_step;
  int64_t queries;  ///< q (D x columns), times scale
  int64_t keys, values, scores;
  int64_t sums;  ///< y (E x columns), before it is divided by the sums of weights
  int64_t factors, row;
};

template <class T, int64_t kLanes>
class ForwardPlan final : public Plan {
 public:
  explicit ForwardPlan(const AttentionForwardSpec& spec)
      : Plan("cpu"), spec_(spec), place_(spec), threads_(NumThreads()) {}
  std::string Describe() const override { return "cpu attention by tiles"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * place_.size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, kLanes);
    const int64_t tiles = Problem::TilesOfHead(spec_);
    const int64_t tasks = spec_.batch * spec_.kv_heads * tiles;
    ForEachTask(tasks, ThreadsFor(spec_.multiply_adds(), threads_),
                [&](int64_t task, int64_t slot) {
                  Tile tile;
                  // The last tiles first: where causal, they have the most keys.
                  problem.Locate(task / tiles, tiles - 1 - task % tiles, &tile);
                  RunTile(execution, problem, tile,
                          static_cast<float*>(execution.workspace) + slot * place_.size());
                });
  }

 private:
  void RunTile(const Execution& execution, const Problem& problem, const Tile& tile,
               float* workspace) const {
    const AttentionRows<const T> k(execution.inputs[1]), v(execution.inputs[2]);
    const int64_t columns = tile.columns, key_step = place_.key_step;
    float *queries = workspace + place_.queries, *scores = workspace + place_.scores;
    float *keys = workspace + place_.keys, *values = workspace + place_.values;
    float *sums = workspace + place_.sums, *factors = workspace + place_.factors;
    float most[kTileQueries], sum[kTileQueries] = {}, factor[kTileQueries];
    std::fill_n(most, kTileQueries, -kInf);
    LoadQueries<T>(AttentionRows<const T>(execution.inputs[0]), tile, spec_.dim, problem.scale(),
                   queries, nullptr, 0, workspace + place_.row);
    if (tile.any_keys == 0) std::fill_n(sums, spec_.value_dim * columns, 0.0f);
    for (int64_t first = 0; first < tile.any_keys; first += kTileKeys) {
      const int64_t n = std::min(kTileKeys, tile.any_keys - first), padded = RoundUp(n, 4);
      PackRows(k.At(tile.batch, tile.kv_head, first), k.row, n, padded, spec_.dim, keys, key_step);
      PackRows(v.At(tile.batch, tile.kv_head, first), v.row, n, n, spec_.value_dim, values,
               place_.value_step);
      Multiply<kLanes>(padded, columns, spec_.dim, {keys, key_step, 1}, queries, columns, scores,
                       columns, false);
      problem.Mask(tile, first, n, scores);
      if (UpdateSoftmax(scores, n, columns, most, sum, factor) && first > 0)
        ScaleColumns(sums, spec_.value_dim, columns, factor);
      if (spec_.has_dropout) {
        problem.DropoutFactors(tile, first, n, factors);
        MultiplyBy(factors, n * columns, scores);
      }
      Multiply<kLanes>(RoundUp(spec_.value_dim, 4), columns, n, {values, 1, place_.value_step},
                       scores, columns, sums, columns, first > 0);
    }
    for (int64_t c = 0; c < tile.count; ++c) {
      factor[c] = sum[c] == 0 ? 0 : 1 / sum[c];
      execution.out<float>(
          1)[(tile.batch * spec_.heads + tile.head[c]) * spec_.queries + tile.query[c]] =
          LogSumExp(most[c], sum[c]);
    }
    StoreQueries<T>(sums, tile, spec_.value_dim, factor, AttentionRows<T>(execution.outputs[0]));
  }

  AttentionForwardSpec spec_;
  Workspace place_;
  int64_t threads_;
};

template <class T>
PlanPtr Make(const AttentionForwardSpec& spec, int64_t lanes) {
  if (lanes == 16) return std::make_shared<ForwardPlan<T, 16>>(spec);
  return std::make_shared<ForwardPlan<T, 8>>(spec);
}

}  // namespace

PlanPtr MakePlan(const AttentionForwardSpec& spec, int64_t lanes) {
  return spec.dtype == kBFloat16 ? Make<BFloat16>(spec, lanes) : Make<float>(spec, lanes);
}

}  // namespace singa::cpu::attention
