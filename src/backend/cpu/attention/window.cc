// Attention of short sequences, such as the windows of Swin: the scores of a head are one tile,
// with a row for each query, so rows of q, k, v and their gradients are used as they lie.
//
//   scores (N x M) = q (N x D) · kᵀ (D x M)        y  (N x E) = weights (N x M) · v (M x E)
//   dp (N x M) = dy (N x E) · vᵀ (E x M)           dv (M x E) = weightsᵀ (M x N) · dy (N x E)
//   dq (N x D) = ds (N x M) · k (M x D)            dk (M x D) = dsᵀ (M x N) · q (N x D)
//
// Only kᵀ and vᵀ are turned around. The many heads are the work of the threads. A task takes all
// heads of a sequence, whose features lie side by side in memory.
//
// The gradient of the mask is Σ ds over the sequences and axes along which it broadcasts. A task
// then takes several sequences of one mask, and has sums of its own, which are added in the end.
// How many tasks there are depends on the shapes alone, and so do all results.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/attention/tile.h"
#include "backend/cpu/linalg/tile_product.h"
#include "backend/cpu/vector.h"
#include "core/tensor/turn.h"
#include "singa/core/half.h"
#include "singa/core/threads.h"

namespace singa::cpu::attention {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// to[c][r] = factor · from[r][c]. Rows and columns are whole vectors.
template <int64_t kLanes>
SINGA_MULTI_ISA void TurnScaled(const float* from, int64_t from_step, int64_t rows, int64_t columns,
                                float factor, float* to, int64_t to_step) {
  for (int64_t r = 0; r < rows; r += kLanes)
    for (int64_t c = 0; c < columns; c += kLanes) {
      Wide<kLanes> square[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) Load(square[i], from + (r + i) * from_step + c);
      TurnSquare(square);
      for (int64_t i = 0; i < kLanes; ++i) Store(to + (c + i) * to_step + r, square[i] * factor);
    }
}

SINGA_MULTI_ISA float Sum(const float* x, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

/// Sizes of the matrices of a head.
struct Sizes {
  Sizes(const AttentionGeometry& g, int64_t lanes)
      : rows(RoundUp(g.queries, 4)),
        key_rows(RoundUp(g.keys, 4)),
        columns(RoundUp(g.keys, lanes)),
        q_step(RoundUp(g.dim, lanes)),
        v_step(RoundUp(g.value_dim, lanes)) {}

  int64_t rows, key_rows;  ///< queries and keys, in fours as products take them
  int64_t columns;         ///< keys in vectors; scores of further ones are -inf
  int64_t q_step, v_step;  ///< features in vectors, zeros behind the last
};

/// What both directions do for a head.
template <class T, int64_t kLanes>
class Head {
 public:
  Head(const AttentionGeometry& geometry, const Sizes& sizes, const Problem& problem)
      : g_(geometry), s_(sizes), problem_(problem) {}

  /// Rows of keys or values, with zeros up to whole vectors of rows, and, if `turned`, their
  /// columns times `factor`.
  void PackKeys(const AttentionRows<const T>& x, int64_t b, int64_t kv_head, int64_t length,
                float* rows, float* turned, float factor) const {
    const int64_t step = RoundUp(length, kLanes);
    PackRows(x.At(b, kv_head, 0), x.row, g_.keys, s_.columns, length, rows, step);
    if (turned) TurnScaled<kLanes>(rows, step, s_.columns, step, factor, turned, s_.columns);
  }
  void PackQueries(const AttentionRows<const T>& x, int64_t b, int64_t h, int64_t length,
                   float* rows) const {
    PackRows(x.At(b, h, 0), x.row, g_.queries, s_.rows, length, rows, RoundUp(length, kLanes));
  }
  void StoreRows(const float* rows, int64_t length, int64_t count, float factor,
                 const AttentionRows<T>& x, int64_t b, int64_t h) const {
    for (int64_t i = 0; i < count; ++i)
      StoreScaled(rows + i * RoundUp(length, kLanes), length, factor, x.At(b, h, i));
  }
  /// Adds the mask to the scores of a query; those of keys that it does not use become -inf.
  void Mask(int64_t b, int64_t h, int64_t i, float* scores) const {
    const int64_t end = problem_.KeysOf(i);
    problem_.AddMask(b, h, i, end, scores);
    std::fill(scores + end, scores + s_.columns, -kInf);
  }
  int64_t Row(int64_t b, int64_t h, int64_t i) const { return (b * g_.heads + h) * g_.queries + i; }

 private:
  const AttentionGeometry& g_;
  const Sizes& s_;
  const Problem& problem_;
};

template <class T, int64_t kLanes>
class ForwardPlan final : public Plan {
 public:
  explicit ForwardPlan(const AttentionForwardSpec& spec)
      : Plan("cpu"),
        spec_(spec),
        sizes_(spec, kLanes),
        threads_(NumThreads()),
        q_(parts_.Take(sizes_.rows * sizes_.q_step)),
        keys_(parts_.Take(sizes_.columns * sizes_.q_step)),
        turned_(parts_.Take(sizes_.columns * sizes_.q_step)),
        values_(parts_.Take(sizes_.columns * sizes_.v_step)),
        scores_(parts_.Take(sizes_.rows * sizes_.columns)),
        y_(parts_.Take(sizes_.rows * sizes_.v_step)) {}
  std::string Describe() const override { return "cpu attention of short sequences"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * parts_.size()) * sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, kLanes);
    ForEachTask(spec_.batch * spec_.kv_heads, ThreadsFor(spec_.multiply_adds(), threads_),
                [&](int64_t task, int64_t slot) {
                  RunHead(execution, problem, task / spec_.kv_heads, task % spec_.kv_heads,
                          static_cast<float*>(execution.workspace) + slot * parts_.size());
                });
  }

 private:
  void RunHead(const Execution& execution, const Problem& problem, int64_t b, int64_t kv_head,
               float* workspace) const {
    const AttentionRows<const T> q(execution.inputs[0]), k(execution.inputs[1]),
        v(execution.inputs[2]);
    const AttentionRows<T> y(execution.outputs[0]);
    float *queries = workspace + q_, *turned = workspace + turned_, *values = workspace + values_;
    float *scores = workspace + scores_, *results = workspace + y_;
    const Head<T, kLanes> head(spec_, sizes_, problem);
    head.PackKeys(k, b, kv_head, spec_.dim, workspace + keys_, turned, problem.scale());
    head.PackKeys(v, b, kv_head, spec_.value_dim, values, nullptr, 1);
    for (int64_t h = kv_head * spec_.group(); h < (kv_head + 1) * spec_.group(); ++h) {
      head.PackQueries(q, b, h, spec_.dim, queries);
      Multiply<kLanes>(sizes_.rows, sizes_.columns, spec_.dim, {queries, sizes_.q_step, 1}, turned,
                       sizes_.columns, scores, sizes_.columns, false);
      float factors[kWindow];
      for (int64_t i = 0; i < spec_.queries; ++i) {
        float *row = scores + i * sizes_.columns, most = -kInf, sum = 0;
        head.Mask(b, h, i, row);
        UpdateSoftmaxRow(row, sizes_.columns, &most, &sum);
        const int64_t number = head.Row(b, h, i);
        execution.out<float>(1)[number] = LogSumExp(most, sum);
        factors[i] = sum == 0 ? 0 : 1 / sum;
        if (!spec_.has_dropout) continue;
        float z[kWindow];
        problem.DropoutRow(number, 0, spec_.keys, z);
        MultiplyBy(z, spec_.keys, row);
      }
      Multiply<kLanes>(sizes_.rows, sizes_.v_step, spec_.keys, {scores, sizes_.columns, 1}, values,
                       sizes_.v_step, results, sizes_.v_step, false);
      for (int64_t i = 0; i < spec_.queries; ++i)
        StoreScaled(results + i * sizes_.v_step, spec_.value_dim, factors[i], y.At(b, h, i));
    }
  }

  AttentionForwardSpec spec_;
  Sizes sizes_;
  int64_t threads_;
  Parts parts_;
  int64_t q_, keys_, turned_, values_, scores_, y_;
};

template <class T, int64_t kLanes>
class BackwardPlan final : public Plan {
 public:
  explicit BackwardPlan(const AttentionBackwardSpec& spec)
      : Plan("cpu"),
        spec_(spec),
        sizes_(spec, kLanes),
        threads_(NumThreads()),
        masks_(spec.need_mask() ? spec.mask_batch : spec.batch),
        sequences_(masks_ == 0 ? 0 : spec.batch / masks_),
        shares_(SplitWork(masks_, sequences_)),
        parts_(SplitWork(masks_ * shares_, spec.kv_heads)),
        q_(place_.Take(sizes_.rows * sizes_.q_step)),
        dy_(place_.Take(sizes_.rows * sizes_.v_step)),
        keys_(place_.Take(sizes_.columns * sizes_.q_step)),
        keys_turned_(place_.Take(sizes_.columns * sizes_.q_step)),
        values_(place_.Take(sizes_.columns * sizes_.v_step)),
        values_turned_(place_.Take(sizes_.columns * sizes_.v_step)),
        scores_(place_.Take(sizes_.rows * sizes_.columns)),
        products_(place_.Take(sizes_.rows * sizes_.columns)),
        dq_(place_.Take(sizes_.rows * sizes_.q_step)),
        dk_(place_.Take(sizes_.key_rows * sizes_.q_step)),
        dv_(place_.Take(sizes_.key_rows * sizes_.v_step)),
        y_(place_.Take(spec.value_dim)) {
    if (!spec.need_mask()) return;
    mask_row_ = spec.dmask[3] == 1 ? 1 : sizes_.columns;
    mask_size_ = spec.dmask[1] * spec.dmask[2] * mask_row_;
  }
  std::string Describe() const override { return "cpu attention of short sequences"; }
  size_t workspace_bytes() const override {
    return static_cast<size_t>(threads_ * place_.size() + masks_ * copies() * mask_size_) *
           sizeof(float);
  }

  void Run(const Execution& execution) const override {
    const Problem problem(spec_, execution, kLanes);
    auto* workspace = static_cast<float*>(execution.workspace);
    float* all_sums = workspace + threads_ * place_.size();
    const int64_t threads = ThreadsFor(spec_.multiply_adds(), threads_);
    ForEachTask(masks_ * copies(), threads, [&](int64_t task, int64_t slot) {
      const int64_t mask = task / copies(), share = task / parts_ % shares_, part = task % parts_;
      float* sums = all_sums + task * mask_size_;
      std::fill_n(sums, mask_size_, 0.0f);
      for (int64_t i = share; i < sequences_; i += shares_)
        for (int64_t head = part; head < spec_.kv_heads; head += parts_)
          RunHead(execution, problem, mask + i * masks_, head, workspace + slot * place_.size(),
                  sums);
    });
    if (!spec_.need_mask()) return;
    const int64_t rows = spec_.dmask[1] * spec_.dmask[2], keys = spec_.dmask[3];
    ForEachTask(masks_ * rows, ThreadsFor(masks_ * rows * copies() * keys, threads_),
                [&](int64_t row, int64_t) {
                  StoreSum(all_sums + row / rows * copies() * mask_size_ + row % rows * mask_row_,
                           copies(), mask_size_, keys, execution.out<float>(3) + row * keys);
                });
  }

 private:
  /// Tasks of a mask.
  int64_t copies() const { return shares_ * parts_; }

  void RunHead(const Execution& execution, const Problem& problem, int64_t b, int64_t kv_head,
               float* workspace, float* sums) const {
    const auto& inputs = execution.inputs;
    const Head<T, kLanes> head(spec_, sizes_, problem);
    const int64_t columns = sizes_.columns, q_step = sizes_.q_step, v_step = sizes_.v_step;
    float *q = workspace + q_, *dy = workspace + dy_, *dq = workspace + dq_;
    float *keys = workspace + keys_, *keys_turned = workspace + keys_turned_;
    float *values = workspace + values_, *values_turned = workspace + values_turned_;
    float *scores = workspace + scores_, *products = workspace + products_;
    float *dk = workspace + dk_, *dv = workspace + dv_;
    head.PackKeys(AttentionRows<const T>(inputs[2]), b, kv_head, spec_.dim, keys, keys_turned,
                  problem.scale());
    head.PackKeys(AttentionRows<const T>(inputs[3]), b, kv_head, spec_.value_dim, values,
                  values_turned, 1);
    for (int64_t member = 0; member < spec_.group(); ++member) {
      const int64_t h = kv_head * spec_.group() + member;
      head.PackQueries(AttentionRows<const T>(inputs[1]), b, h, spec_.dim, q);
      head.PackQueries(AttentionRows<const T>(inputs[0]), b, h, spec_.value_dim, dy);
      Multiply<kLanes>(sizes_.rows, columns, spec_.dim, {q, q_step, 1}, keys_turned, columns,
                       scores, columns, false);
      Multiply<kLanes>(sizes_.rows, columns, spec_.value_dim, {dy, v_step, 1}, values_turned,
                       columns, products, columns, false);
      for (int64_t i = 0; i < spec_.queries; ++i)
        RunRow(execution, problem, head, b, h, i, workspace, sums);
      if (spec_.need_v)
        Multiply<kLanes>(sizes_.key_rows, v_step, spec_.queries, {scores, 1, columns}, dy, v_step,
                         dv, v_step, member > 0);
      if (spec_.need_k)
        Multiply<kLanes>(sizes_.key_rows, q_step, spec_.queries, {products, 1, columns}, q, q_step,
                         dk, q_step, member > 0);
      if (!spec_.need_q) continue;
      Multiply<kLanes>(sizes_.rows, q_step, spec_.keys, {products, columns, 1}, keys, q_step, dq,
                       q_step, false);
      head.StoreRows(dq, spec_.dim, spec_.queries, problem.scale(),
                     AttentionRows<T>(execution.outputs[0]), b, h);
    }
    if (spec_.need_k)
      head.StoreRows(dk, spec_.dim, spec_.keys, problem.scale(),
                     AttentionRows<T>(execution.outputs[1]), b, kv_head);
    if (spec_.need_v)
      head.StoreRows(dv, spec_.value_dim, spec_.keys, 1, AttentionRows<T>(execution.outputs[2]), b,
                     kv_head);
  }

  /// Weights of v and gradients of the scores of a query, in the place of scores and products.
  void RunRow(const Execution& execution, const Problem& problem, const Head<T, kLanes>& head,
              int64_t b, int64_t h, int64_t i, float* workspace, float* sums) const {
    float *scores = workspace + scores_ + i * sizes_.columns, *y = workspace + y_;
    float *products = workspace + products_ + i * sizes_.columns, z[kWindow] = {};
    const int64_t number = head.Row(b, h, i);
    head.Mask(b, h, i, scores);
    PackRows(AttentionRows<const T>(execution.inputs[5]).At(b, h, i), 0, 1, 1, spec_.value_dim, y,
             spec_.value_dim);
    const float log_sum = execution.in<float>(6)[number];
    if (spec_.has_dropout) problem.DropoutRow(number, 0, spec_.keys, z);
    RowWeightsAndGradients(scores, products, spec_.has_dropout ? z : nullptr, sizes_.columns,
                           log_sum == -kInf ? 0 : log_sum,
                           Dot(workspace + dy_ + i * sizes_.v_step, y, spec_.value_dim));
    if (!spec_.need_mask()) return;
    const int64_t mask_head = spec_.dmask[1] == 1 ? 0 : h, mask_query = spec_.dmask[2] == 1 ? 0 : i;
    float* sum = sums + (mask_head * spec_.dmask[2] + mask_query) * mask_row_;
    if (mask_row_ == 1) {
      *sum += Sum(products, spec_.keys);
    } else {
      AddTo(products, sizes_.columns, sum);
    }
  }

  AttentionBackwardSpec spec_;
  Sizes sizes_;
  int64_t threads_;
  int64_t masks_, sequences_;  ///< sequences with the same mask
  int64_t shares_, parts_;     ///< tasks of these sequences, and of their heads
  Parts place_;
  int64_t q_, dy_, keys_, keys_turned_, values_, values_turned_, scores_, products_;
  int64_t dq_, dk_, dv_, y_;
  int64_t mask_row_ = 0, mask_size_ = 0;  ///< of a task's sums of the mask's gradient
};

template <template <class, int64_t> class MadePlan, class Spec>
PlanPtr MakeFor(const Spec& spec, int64_t lanes) {
  const auto make = [&]<class T>() -> PlanPtr {
    if (lanes == 16) return std::make_shared<MadePlan<T, 16>>(spec);
    return std::make_shared<MadePlan<T, 8>>(spec);
  };
  return spec.dtype == kBFloat16 ? make.template operator()<BFloat16>()
                                 : make.template operator()<float>();
}

}  // namespace

PlanPtr MakeWindowPlan(const AttentionForwardSpec& spec, int64_t lanes) {
  return MakeFor<ForwardPlan>(spec, lanes);
}

PlanPtr MakeWindowPlan(const AttentionBackwardSpec& spec, int64_t lanes) {
  return MakeFor<BackwardPlan>(spec, lanes);
}

}  // namespace singa::cpu::attention
