#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// What both directions have in common. See singa/operation/attention.h.
///
/// Scalars: v[0] = scale, v[1] = dropout, v[2] = first_query; forward's seed and offset.
///
/// q, k, v, y and their gradients have any strides, but a last axis of stride 1; mask has any, also
/// 0. The other arguments are contiguous.
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

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("batch", self.batch);
    visitor("heads", self.heads);
    visitor("kv_heads", self.kv_heads);
    visitor("queries", self.queries);
    visitor("keys", self.keys);
    visitor("dim", self.dim);
    visitor("value_dim", self.value_dim);
    visitor("dtype", self.dtype);
    visitor("has_mask", self.has_mask);
    visitor("mask_batch", self.mask_batch);
    visitor("causal", self.causal);
    visitor("has_dropout", self.has_dropout);
  }
};

/// Inputs: q, k, v, mask (or empty). Outputs: y, logsumexp, draw (empty without dropout).
struct AttentionForwardSpec : AttentionGeometry {
  const char* op() const { return "AttentionForward"; }
  void CheckCall(CallChecker& call) const;
  /// For the profile; an upper bound where causal.
  int64_t multiply_adds() const { return batch * heads * queries * keys * (dim + value_dim); }
  /// Of the terms of each output (attention_tolerance.cc).
  std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs, const Scalars& scalars) const;
};

/// Inputs: dy, q, k, v, mask (or empty), y, logsumexp, draw (empty without dropout). Outputs: dq,
/// dk, dv, dmask, empty where not needed. dmask is contiguous, of logsumexp's type.
struct AttentionBackwardSpec : AttentionGeometry {
  bool need_q = true;
  bool need_k = true;
  bool need_v = true;
  Shape dmask = {};  ///< (mask_batch, H or 1, N or 1, M or 1); rank 0: not needed

  const char* op() const { return "AttentionBackward"; }
  void CheckCall(CallChecker& call) const;
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
  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    AttentionGeometry::VisitFields(self, visitor);
    visitor("need_q", self.need_q);
    visitor("need_k", self.need_k);
    visitor("need_v", self.need_v);
    visitor("dmask", self.dmask);
  }
};

}  // namespace singa
