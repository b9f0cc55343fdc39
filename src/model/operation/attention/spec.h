#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// What both directions have in common. See singa/operation/attention.h.
///
/// Scalars: v[0] = scale, v[1] = dropout, v[2] = first_query; forward's seed and offset.
struct AttentionGeometry {
  int64_t batch = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;  // divides `heads`
  int64_t queries = 0;
  int64_t keys = 0;
  int64_t dim = 0;        // of queries and keys
  int64_t value_dim = 0;  // of values
  DType dtype = kFloat32;
  bool has_mask = false;
  int64_t mask_batch = 1;  // divides `batch`: sequence b has mask b % mask_batch
  bool causal = false;
  bool has_dropout = false;

  Shape q_shape() const { return {batch, heads, queries, dim}; }
  Shape k_shape() const { return {batch, kv_heads, keys, dim}; }
  Shape v_shape() const { return {batch, kv_heads, keys, value_dim}; }
  Shape y_shape() const { return {batch, heads, queries, value_dim}; }
  Shape mask_shape() const { return {mask_batch, heads, queries, keys}; }
  Shape logsumexp_shape() const { return {batch, heads, queries}; }
  DType logsumexp_type() const { return dtype == kFloat64 ? kFloat64 : kFloat32; }
  /// Number of heads of q that use one head of k.
  int64_t group() const { return kv_heads > 0 ? heads / kv_heads : 0; }
  int64_t sum_length() const { return std::max({dim, keys, queries * group()}); }

  SINGA_FIELDS(batch, heads, kv_heads, queries, keys, dim, value_dim, dtype, has_mask, mask_batch,
               causal, has_dropout);

 protected:
  void VisitSides(ArgumentVisitor& visit) const {
    visit.Input("q", q_shape(), dtype, {.dense_rows = true});
    visit.Input("k", k_shape(), dtype, {.dense_rows = true});
    visit.Input("v", v_shape(), dtype, {.dense_rows = true});
  }
};

struct AttentionForwardSpec : AttentionGeometry {
  const char* op() const { return "AttentionForward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    VisitSides(visit);
    visit.Input("mask", mask_shape(), visit.TypeOfInput(3), {.given = has_mask, .strided = true});
    visit.Output("y", y_shape(), dtype, {.rows_like = 0});
    visit.Output("logsumexp", logsumexp_shape(), logsumexp_type());
    visit.Output("draw", {2}, kInt64, {.given = has_dropout});
  }
  void CheckFields(const CallChecker& call) const;
  /// For the profile; an upper bound where causal.
  int64_t multiply_adds() const { return batch * heads * queries * keys * (dim + value_dim); }
  /// Of the terms of each output (attention/tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs, const Scalars& scalars) const;
};

struct AttentionBackwardSpec : AttentionGeometry {
  bool need_q = true;
  bool need_k = true;
  bool need_v = true;
  Shape dmask = {};  ///< (mask_batch, H or 1, N or 1, M or 1); rank 0: not needed

  const char* op() const { return "AttentionBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", y_shape(), dtype, {.dense_rows = true});
    VisitSides(visit);
    visit.Input("mask", mask_shape(), visit.TypeOfInput(4), {.given = has_mask, .strided = true});
    visit.Input("y", y_shape(), dtype, {.dense_rows = true});
    visit.Input("logsumexp", logsumexp_shape(), logsumexp_type());
    visit.Input("draw", {2}, kInt64, {.given = has_dropout});
    visit.Output("dq", q_shape(), dtype, {.given = need_q, .rows_like = 1});
    visit.Output("dk", k_shape(), dtype, {.given = need_k, .rows_like = 2});
    visit.Output("dv", v_shape(), dtype, {.given = need_v, .rows_like = 3});
    visit.Output("dmask", dmask, logsumexp_type(), {.given = need_mask()});
  }
  void CheckFields(const CallChecker& call) const;
  bool need_mask() const { return !dmask.empty(); }
  int64_t multiply_adds() const {
    return batch * heads * queries * keys *
           ((1 + need_q + need_k) * dim + (1 + need_v) * value_dim);
  }
  /// An element of dmask sums the scores of all axes along which it broadcasts.
  int64_t sum_length() const {
    const int64_t elements = need_mask() ? dmask.Count() : 0;
    return std::max(AttentionGeometry::sum_length(),
                    elements == 0 ? 0 : logsumexp_shape().Count() * keys / elements);
  }
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs, const Scalars& scalars) const;
  SINGA_MORE_FIELDS(AttentionGeometry, need_q, need_k, need_v, dmask);
};

}  // namespace singa
