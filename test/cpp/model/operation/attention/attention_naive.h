#pragma once

// Attention by its definition, in float64 with naive loops, and the bounds of the errors of others.

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support.h"

namespace singa::test {

/// A call.
struct AttentionCase {
  Tensor q, k, v, mask, dy;
  double scale = 1;
  bool causal = false;
  int64_t first_query = 0;
  std::vector<double> z;  ///< dropout's factors, (B, H, N, M); empty: 1

  struct Heads {
    int64_t batch, q, kv;
  };
  struct Lengths {
    int64_t queries, keys;
  };
  struct Features {
    int64_t dim, value_dim;
  };

  /// Any strides, no mask.
  static AttentionCase Of(Random& random, DType dtype, const Heads& heads, const Lengths& lengths,
                          const Features& features) {
    AttentionCase c;
    c.q = AnyTensor(random, {heads.batch, heads.q, lengths.queries, features.dim}, dtype);
    c.k = AnyTensor(random, {heads.batch, heads.kv, lengths.keys, features.dim}, dtype);
    c.v = AnyTensor(random, {heads.batch, heads.kv, lengths.keys, features.value_dim}, dtype);
    c.dy = AnyTensor(random, {heads.batch, heads.q, lengths.queries, features.value_dim}, dtype);
    return c;
  }

  static AttentionCase Any(Random& random, DType dtype) {
    const int64_t kv_heads = random.Int(1, 3), group = random.Int(1, 3);
    const auto length = [&] { return random.Int(0, 3) == 0 ? 1 : random.Int(1, 90); };
    const auto features = [&] {
      return random.Int(0, 3) == 0 ? random.Int(1, 5) : random.Int(6, 40);
    };
    AttentionCase c = Of(random, dtype, {random.Int(1, 4), kv_heads * group, kv_heads},
                         {length(), length()}, {features(), features()});
    c.scale = random.Real(-0.5, 2);
    c.causal = random.Coin();
    c.first_query = random.Int(0, 2) == 0 ? random.Int(-20, 60) : 0;
    if (random.Coin()) {
      Shape shape{c.q.shape(0), c.q.shape(1), c.q.shape(2), c.k.shape(2)};
      for (int axis = 0; axis < 4; ++axis)
        if (random.Int(0, 2) == 0) shape[axis] = 1;
      if (shape[0] == 4 && random.Coin()) shape[0] = 2;  // repeats along the batch
      if (random.Coin() && shape[0] == 1) shape.erase(0);
      const DType types[] = {kFloat32, dtype, kFloat64};
      c.mask = AnyTensor(random, shape, types[random.Int(0, 2)], -2, 2);
      if (random.Coin()) {
        std::vector<double> used = Values(c.mask);
        for (double& value : used) value = value > -1.2;
        c.mask = FromValues(shape, used).AsType(kBool);
      }
    }
    return c;
  }

  std::string ToString() const {
    return q.ToString() + ", k " + k.shape().ToString() + ", v " + v.shape().ToString() +
           (mask.empty() ? "" : ", mask " + mask.ToString()) + (causal ? ", causal from " : "") +
           (causal ? std::to_string(first_query) : "");
  }
};

/// Its results. An element's bound follows from rounding errors: a score is a sum of D terms in at
/// least float32, an error of which is a relative error of its exponential.
class NaiveAttention {
 public:
  explicit NaiveAttention(const AttentionCase& c)
      : c_(c), q_(Values(c.q)), k_(Values(c.k)), v_(Values(c.v)), dy_(Values(c.dy)) {
    masks_ = c.mask.rank() == 4 ? c.mask.shape(0) : 1;
    if (!c.mask.empty()) mask_ = Values(c.mask.Broadcast({masks_, H(), N(), M()}));
    y_.resize(static_cast<size_t>(B() * H() * N() * E()));
    y_bound_ = y_;
    const int64_t longest = std::max({M(), D(), E(), N() * (K() > 0 ? H() / K() : 0)});
    step_ = (c.q.data_type() == kFloat64 ? 0x1p-52 : 0x1p-23) * 8 *
            std::sqrt(static_cast<double>(longest + 1));
    ForRows([&](int64_t b, int64_t h, int64_t i, const Scores& s) {
      double most = -kNone, sum = 0, terms = 0;
      for (const double score : s.value) most = std::max(most, score);
      const double shift = most == -kNone ? 0 : most;
      for (size_t j = 0; j < s.value.size(); ++j) {
        sum += std::exp(s.value[j] - shift);
        terms = std::max(terms, s.terms[j]);
      }
      logsumexp_.push_back(sum == 0 ? -kNone : shift + std::log(sum));
      logsumexp_bound_.push_back(step_ * (1 + terms + std::abs(logsumexp_.back())));
      if (sum == 0) return;
      for (size_t j = 0; j < s.value.size(); ++j) {
        const double weight =
            std::exp(s.value[j] - shift) / sum * Z(b, h, i, static_cast<int64_t>(j));
        for (int64_t e = 0; e < E(); ++e) {
          const double value = v_[V(b, h, static_cast<int64_t>(j), e)];
          y_[Y(b, h, i, e)] += weight * value;
          y_bound_[Y(b, h, i, e)] += step_ * (1 + 2 * terms) * weight * std::abs(value);
        }
      }
    });
  }

  Tensor y_tensor() const { return FromValues({B(), H(), N(), E()}, y_, c_.q.data_type()); }
  Tensor logsumexp_tensor() const {
    return FromValues({B(), H(), N()}, logsumexp_,
                      c_.q.data_type() == kFloat64 ? kFloat64 : kFloat32);
  }

  void ExpectForward(const std::vector<Tensor>& results) const {
    EXPECT_EQ(results[0].shape(), (Shape{B(), H(), N(), E()}));
    EXPECT_EQ(results[0].data_type(), c_.q.data_type());
    EXPECT_EQ(results[1].shape(), (Shape{B(), H(), N()}));
    ExpectNear(results[0], y_, y_bound_, "y");
    ExpectNear(results[1], logsumexp_, logsumexp_bound_, "logsumexp");
  }

  /// The gradients, from y_tensor() and logsumexp_tensor() as backward gets them. That of the mask
  /// only where it is there.
  void ExpectBackward(const std::vector<Tensor>& gradients) const {
    const std::vector<double> y = Values(y_tensor()), logsumexp = Values(logsumexp_tensor());
    std::vector<double> dq(q_.size()), dk(k_.size()), dv(v_.size());
    std::vector<double> dq_bound = dq, dk_bound = dk, dv_bound = dv;
    const bool has_mask = gradients.size() > 3 && !gradients[3].empty();
    std::vector<double> dmask(has_mask ? static_cast<size_t>(c_.mask.size()) : 0);
    std::vector<double> dmask_bound = dmask;
    // An element of dmask may sum more terms than step_ is for.
    const double sums_step =
        has_mask && c_.mask.size() > 0
            ? std::sqrt(1 + static_cast<double>(B() * H() * N() * M() / c_.mask.size()))
            : 1;
    size_t row = 0;
    ForRows([&](int64_t b, int64_t h, int64_t i, const Scores& s) {
      const double log_sum = logsumexp[row++];
      if (std::isinf(log_sum)) return;
      double along = 0, along_terms = 0;
      for (int64_t e = 0; e < E(); ++e) {
        along += dy_[Y(b, h, i, e)] * y[Y(b, h, i, e)];
        along_terms += std::abs(dy_[Y(b, h, i, e)] * y[Y(b, h, i, e)]);
      }
      for (int64_t j = 0; j < static_cast<int64_t>(s.value.size()); ++j) {
        const auto at = static_cast<size_t>(j);
        const double weight = std::exp(s.value[at] - log_sum), z = Z(b, h, i, j);
        const double error = step_ * (1 + s.terms[at] + std::abs(log_sum));
        double dp = 0, dp_terms = 0;
        for (int64_t e = 0; e < E(); ++e) {
          const double product = z * dy_[Y(b, h, i, e)] * v_[V(b, h, j, e)];
          dp += product;
          dp_terms += std::abs(product);
          dv[V(b, h, j, e)] += weight * z * dy_[Y(b, h, i, e)];
          dv_bound[V(b, h, j, e)] += error * std::abs(weight * z * dy_[Y(b, h, i, e)]);
        }
        const double added = weight * (dp - along);
        const double added_bound = error * weight * (dp_terms + along_terms);
        if (has_mask) {
          dmask[MaskElement(b, h, i, j)] += added;
          dmask_bound[MaskElement(b, h, i, j)] += added_bound * sums_step;
        }
        const double ds = c_.scale * added, ds_bound = std::abs(c_.scale) * added_bound;
        for (int64_t d = 0; d < D(); ++d) {
          dq[Q(b, h, i, d)] += ds * k_[Key(b, h, j, d)];
          dk[Key(b, h, j, d)] += ds * q_[Q(b, h, i, d)];
          dq_bound[Q(b, h, i, d)] += ds_bound * std::abs(k_[Key(b, h, j, d)]);
          dk_bound[Key(b, h, j, d)] += ds_bound * std::abs(q_[Q(b, h, i, d)]);
        }
      }
    });
    EXPECT_EQ(gradients[0].shape(), c_.q.shape());
    EXPECT_EQ(gradients[1].shape(), c_.k.shape());
    EXPECT_EQ(gradients[2].shape(), c_.v.shape());
    ExpectNear(gradients[0], dq, dq_bound, "dq");
    ExpectNear(gradients[1], dk, dk_bound, "dk");
    ExpectNear(gradients[2], dv, dv_bound, "dv");
    if (!has_mask) return;
    EXPECT_EQ(gradients[3].shape(), c_.mask.shape());
    EXPECT_EQ(gradients[3].data_type(), c_.mask.data_type());
    ExpectNear(gradients[3], dmask, dmask_bound, "dmask");
  }

 private:
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  /// Of one query; no more keys than it may use.
  struct Scores {
    std::vector<double> value, terms;
  };

  template <class F>
  void ForRows(const F& visit) const {
    for (int64_t b = 0; b < B(); ++b)
      for (int64_t h = 0; h < H(); ++h)
        for (int64_t i = 0; i < N(); ++i) {
          Scores s;
          for (int64_t j = 0; j < M(); ++j) {
            if (c_.causal && j > c_.first_query + i) break;
            double score = 0, terms = 0;
            for (int64_t d = 0; d < D(); ++d) {
              const double product = c_.scale * q_[Q(b, h, i, d)] * k_[Key(b, h, j, d)];
              score += product;
              terms += std::abs(product);
            }
            if (!mask_.empty()) {
              const double m =
                  mask_[static_cast<size_t>(((b % masks_ * H() + h) * N() + i) * M() + j)];
              const bool is_bool = c_.mask.data_type() == kBool;
              const double added = !is_bool ? m : m != 0 ? 0 : -kNone;
              score += added;
              terms += std::isinf(added) ? 0 : std::abs(added);
            }
            s.value.push_back(score);
            s.terms.push_back(terms);
          }
          visit(b, h, i, s);
        }
  }

  int64_t B() const { return c_.q.shape(0); }
  int64_t H() const { return c_.q.shape(1); }
  int64_t K() const { return c_.k.shape(1); }
  int64_t N() const { return c_.q.shape(2); }
  int64_t M() const { return c_.k.shape(2); }
  int64_t D() const { return c_.q.shape(3); }
  int64_t E() const { return c_.v.shape(3); }
  static size_t At(int64_t at) { return static_cast<size_t>(at); }
  size_t Q(int64_t b, int64_t h, int64_t i, int64_t d) const {
    return At(((b * H() + h) * N() + i) * D() + d);
  }
  size_t Y(int64_t b, int64_t h, int64_t i, int64_t e) const {
    return At(((b * H() + h) * N() + i) * E() + e);
  }
  int64_t KeyRow(int64_t b, int64_t h, int64_t j) const {
    return (b * K() + h / (H() / K())) * M() + j;
  }
  size_t Key(int64_t b, int64_t h, int64_t j, int64_t d) const {
    return At(KeyRow(b, h, j) * D() + d);
  }
  size_t V(int64_t b, int64_t h, int64_t j, int64_t e) const {
    return At(KeyRow(b, h, j) * E() + e);
  }
  /// The element of the mask that is added to a score.
  size_t MaskElement(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t index[] = {b % masks_, h, i, j};
    const Shape& shape = c_.mask.shape();
    int64_t at = 0;
    for (int axis = 0; axis < shape.rank(); ++axis)
      at = at * shape[axis] + (shape[axis] == 1 ? 0 : index[axis + 4 - shape.rank()]);
    return At(at);
  }
  double Z(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return c_.z.empty() ? 1 : c_.z[At(((b * H() + h) * N() + i) * M() + j)];
  }

  const AttentionCase& c_;
  std::vector<double> q_, k_, v_, dy_, mask_;
  int64_t masks_ = 1;  ///< sequence b has mask b % masks_
  double step_;
  std::vector<double> y_, y_bound_, logsumexp_, logsumexp_bound_;
};

}  // namespace singa::test
