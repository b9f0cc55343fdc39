// Attention of a few queries for each head of keys, as in a step of sampling. Tiles with a column
// for each query would be almost empty, so vectors run along the features here, and along the keys
// in softmax. Keys and values are read where they are.

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <string>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/tile.h"
#include "core/tensor/dtype_switch.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// out[j] = q · row j of k, for kRows rows.
template <int kRows, class T>
[[gnu::always_inline]] inline void DotRows(const float* q, const T* k, int64_t step, int64_t dim,
                                           float* out) {
  constexpr int64_t kLanes = 16;
  float sums[kRows][kLanes] = {};
  const int64_t body = dim / kLanes * kLanes;
  for (int64_t d = 0; d < body; d += kLanes)
    for (int j = 0; j < kRows; ++j)
      for (int64_t lane = 0; lane < kLanes; ++lane)
        sums[j][lane] += q[d + lane] * Convert<float>(k[j * step + d + lane]);
  for (int j = 0; j < kRows; ++j) {
    float rest = 0;
    for (int64_t d = body; d < dim; ++d) rest += q[d] * Convert<float>(k[j * step + d]);
    for (int64_t width = kLanes / 2; width > 0; width /= 2)
      for (int64_t lane = 0; lane < width; ++lane) sums[j][lane] += sums[j][lane + width];
    out[j] = sums[j][0] + rest;
  }
}

template <class T>
SINGA_MULTI_ISA void Dots(const float* q, const T* k, int64_t step, int64_t rows, int64_t dim,
                          float* out) {
  int64_t j = 0;
  for (; j + 4 <= rows; j += 4) DotRows<4>(q, k + j * step, step, dim, out + j);
  for (; j < rows; ++j) DotRows<1>(q, k + j * step, step, dim, out + j);
}

/// sums += Σ weights[j] · row j of v. Four rows at a time share one load and store of the sums.
template <class T>
SINGA_MULTI_ISA void AddRows(const float* weights, const T* v, int64_t step, int64_t rows,
                             int64_t length, float* sums) {
  int64_t j = 0;
  for (; j + 4 <= rows; j += 4) {
    const T *v0 = v + j * step, *v1 = v0 + step, *v2 = v1 + step, *v3 = v2 + step;
    const float w0 = weights[j], w1 = weights[j + 1], w2 = weights[j + 2], w3 = weights[j + 3];
#pragma omp simd
    for (int64_t e = 0; e < length; ++e)
      sums[e] += (w0 * Convert<float>(v0[e]) + w1 * Convert<float>(v1[e])) +
                 (w2 * Convert<float>(v2[e]) + w3 * Convert<float>(v3[e]));
  }
  for (; j < rows; ++j)
#pragma omp simd
    for (int64_t e = 0; e < length; ++e) sums[e] += weights[j] * Convert<float>(v[j * step + e]);
}

template <class T>
class FewQueriesPlan final : public Plan {
 public:
  explicit FewQueriesPlan(const AttentionForwardSpec& spec)
      : Plan("cpu"),
        spec_(spec),
        threads_(NumThreads()),
        query_(parts_.Take(spec.dim)),
        sums_(parts_.Take(spec.value_dim)) {}
  std::string Describe() const override { return "cpu attention of few queries"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * parts_.size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, 1);
    ForEachTask(spec_.batch * spec_.kv_heads, ThreadsFor(spec_.multiply_adds(), threads_),
                [&](int64_t head, int64_t slot) {
                  Tile tile;
                  problem.Locate(head, 0, &tile);
                  for (int64_t c = 0; c < tile.count; ++c)
                    RunQuery(execution, problem, tile, c,
                             static_cast<float*>(execution.workspace) + slot * parts_.size());
                });
  }

 private:
  void RunQuery(const Execution& execution, const Problem& problem, const Tile& tile, int64_t c,
                float* workspace) const {
    const AttentionRows<const T> q(execution.inputs[0]), k(execution.inputs[1]),
        v(execution.inputs[2]);
    const int64_t b = tile.batch, h = tile.head[c], i = tile.query[c];
    float *query = workspace + query_, *sums = workspace + sums_;
    float scores[kTileKeys], factors[kTileKeys];
    PackRows(q.At(b, h, i), 0, 1, 1, spec_.dim, query, spec_.dim);
    for (int64_t d = 0; d < spec_.dim; ++d) query[d] *= problem.scale();
    std::fill_n(sums, spec_.value_dim, 0.0f);
    float most = -kInf, sum = 0;
    for (int64_t first = 0; first < tile.keys[c]; first += kTileKeys) {
      const int64_t n = std::min(kTileKeys, tile.keys[c] - first);
      Dots(query, k.At(b, tile.kv_head, first), k.row, n, spec_.dim, scores);
      problem.MaskRow(tile, c, first, n, scores);
      const float factor = UpdateSoftmaxRow(scores, n, &most, &sum);
      if (factor != 1)
        for (int64_t e = 0; e < spec_.value_dim; ++e) sums[e] *= factor;
      if (spec_.has_dropout) {
        problem.DropoutRow(tile, c, first, n, factors);
        MultiplyBy(factors, n, scores);
      }
      AddRows(scores, v.At(b, tile.kv_head, first), v.row, n, spec_.value_dim, sums);
    }
    execution.out<float>(1)[(b * spec_.heads + h) * spec_.queries + i] = LogSumExp(most, sum);
    StoreScaled(sums, spec_.value_dim, sum == 0 ? 0.0f : 1 / sum,
                AttentionRows<T>(execution.outputs[0]).At(b, h, i));
  }

  AttentionForwardSpec spec_;
  int64_t threads_;
  Parts parts_;
  int64_t query_, sums_;
};

}  // namespace

PlanPtr MakeFewQueriesPlan(const AttentionForwardSpec& spec) {
  if (spec.dtype == kBFloat16) return std::make_shared<FewQueriesPlan<BFloat16>>(spec);
  return std::make_shared<FewQueriesPlan<float>>(spec);
}

}  // namespace singa::cpu::attention
