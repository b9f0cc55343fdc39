// The magnitudes that OPCHECK's tolerance follows, for attention: the same formulas with every term
// positive, in double. A rounding error of a score becomes a relative error of its exponential, so
// each weight counts as often as its score has terms of magnitude one.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "model/dispatch/opcheck/difference.h"
#include "model/formula/attention.h"
#include "model/operation/attention/arguments.h"
#include "model/operation/attention/spec.h"

namespace singa {

using opcheck::Read;
using opcheck::Values;
using opcheck::Write;

namespace {

/// Σ |a · b|
double Terms(const double* a, const double* b, int64_t length) {
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) sum += std::abs(a[i] * b[i]);
  return sum;
}

/// sums += factor · |x|
void Add(double factor, const double* x, int64_t length, double* sums) {
  for (int64_t i = 0; i < length; ++i) sums[i] += factor * std::abs(x[i]);
}

/// The scores of one query after the other.
struct Rows {
  Rows(const AttentionGeometry& g, const Tensor& q_tensor, const Tensor& k_tensor,
       const Tensor& mask_tensor, const Scalars& scalars)
      : geometry(g),
        numbers(scalars),
        q(Read(q_tensor)),
        k(Read(k_tensor)),
        mask(Read(mask_tensor)),
        scores(static_cast<size_t>(g.keys)),
        terms(scores.size()) {
    if (!mask_tensor.empty() && mask_tensor.data_type() == kBool)
      for (double& value : mask) value = value != 0 ? 0 : -std::numeric_limits<double>::infinity();
  }

  /// Calls visit() for each query, of which `scores` and `terms`, their magnitudes, are then.
  template <class F>
  void ForEach(const F& visit) {
    const AttentionGeometry& g = geometry;
    for (row = 0; row < g.logsumexp_shape().Count(); ++row) {
      const auto first_query = static_cast<int64_t>(numbers.v[2]);
      keys = g.causal ? formula::CausalKeys(first_query, row % g.queries, g.keys) : g.keys;
      const int64_t head = row / g.queries;
      const int64_t mask_row = row % (g.mask_batch * g.heads * g.queries);
      kv_head = head / g.heads * g.kv_heads + head % g.heads / g.group();
      for (int64_t j = 0; j < keys; ++j) {
        const double *a = q.data() + row * g.dim, *b = Key(j);
        double score = 0;
        for (int64_t d = 0; d < g.dim; ++d) score += a[d] * b[d];
        const double added = g.has_mask ? mask[static_cast<size_t>(mask_row * g.keys + j)] : 0;
        const auto at = static_cast<size_t>(j);
        scores[at] = numbers.v[0] * score + added;
        terms[at] = std::abs(numbers.v[0]) * Terms(a, b, g.dim) +
                    (std::isfinite(added) ? std::abs(added) : 0);
      }
      visit();
    }
  }
  const double* Key(int64_t j) const {
    return k.data() + (kv_head * geometry.keys + j) * geometry.dim;
  }
  /// Position of a value of this row's head.
  int64_t Value(int64_t j) const { return (kv_head * geometry.keys + j) * geometry.value_dim; }

  const AttentionGeometry& geometry;
  const Scalars& numbers;
  Values q, k, mask;
  int64_t row = 0, kv_head = 0, keys = 0;
  Values scores, terms;
};

}  // namespace

std::vector<Tensor> AttentionForwardSpec::Magnitudes(const std::vector<Tensor>& inputs,
                                                     const Scalars& scalars) const {
  Rows rows(*this, inputs[0], inputs[1], inputs[3], scalars);
  const Values v = Read(inputs[2]);
  Values y(static_cast<size_t>(y_shape().Count())), logsumexp;
  rows.ForEach([&] {
    const auto end = static_cast<size_t>(rows.keys);
    double most = -std::numeric_limits<double>::infinity(), sum = 0, spread = 0;
    for (size_t j = 0; j < end; ++j) most = std::max(most, rows.scores[j]);
    if (std::isinf(most)) most = 0;
    for (size_t j = 0; j < end; ++j) {
      const double weight = std::exp(rows.scores[j] - most);
      sum += weight;
      spread += weight * rows.terms[j];
    }
    logsumexp.push_back(sum == 0 ? 1 : 1 + std::abs(most) + std::log1p(sum) + spread / sum);
    for (size_t j = 0; j < end && sum != 0; ++j)
      Add(std::exp(rows.scores[j] - most) / sum * (1 + rows.terms[j] + spread / sum) /
              (1 - scalars.v[1]),
          v.data() + rows.Value(static_cast<int64_t>(j)), value_dim,
          y.data() + rows.row * value_dim);
  });
  return {Write(y, y_shape()), Write(logsumexp, logsumexp_shape())};
}

std::vector<Tensor> AttentionBackwardSpec::Magnitudes(const std::vector<Tensor>& inputs,
                                                      const Scalars& scalars) const {
  Rows rows(*this, inputs[1], inputs[2], inputs[4], scalars);
  const Values dy = Read(inputs[0]), v = Read(inputs[3]), y = Read(inputs[5]);
  const Values logsumexp = Read(inputs[6]);
  Values dq(rows.q.size()), dk(rows.k.size()), dv(v.size());
  Values added(static_cast<size_t>(need_mask() ? dmask.Count() : 0));
  rows.ForEach([&] {
    const double log_sum = logsumexp[static_cast<size_t>(rows.row)];
    if (std::isinf(log_sum)) return;  // no weights
    const double factor = 1 / (1 - scalars.v[1]);
    const double* gradient = dy.data() + rows.row * value_dim;
    const double* query = rows.q.data() + rows.row * dim;
    const double along = Terms(gradient, y.data() + rows.row * value_dim, value_dim);
    for (int64_t j = 0; j < rows.keys; ++j) {
      const auto at = static_cast<size_t>(j);
      const double weight =
          std::exp(rows.scores[at] - log_sum) * (1 + rows.terms[at] + std::abs(log_sum));
      const double dp = factor * Terms(gradient, v.data() + rows.Value(j), value_dim);
      const double ds = weight * (dp + along), scaled = std::abs(scalars.v[0]) * ds;
      Add(scaled, rows.Key(j), dim, dq.data() + rows.row * dim);
      Add(scaled, query, dim, dk.data() + (rows.Key(j) - rows.k.data()));
      if (need_mask()) added[static_cast<size_t>(AttentionMaskElement(*this, rows.row, j))] += ds;
      Add(factor * weight, gradient, value_dim, dv.data() + rows.Value(j));
    }
  });
  return {need_q ? Write(dq, q_shape()) : Tensor(), need_k ? Write(dk, k_shape()) : Tensor(),
          need_v ? Write(dv, v_shape()) : Tensor(), need_mask() ? Write(added, dmask) : Tensor()};
}

}  // namespace singa
