#pragma once

// Calls of attention, and their results by `reference`.

#include <algorithm>

#include "singa/operation/attention.h"
#include "support.h"

namespace singa::test {

/// A call.
struct AttentionCase {
  Tensor q, k, v, mask, dy;
  double scale = 1;
  bool causal = false;
  int64_t first_query = 0;

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
        Vector used = Values(c.mask);
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

/// Its results by `reference` in float64, and how far others may be from them.
class ReferenceAttention {
 public:
  explicit ReferenceAttention(const AttentionCase& c) : type_(c.q.data_type()) {
    const PreferenceScope reference(Preference::kReference);
    const auto wide = [](const Tensor& t) {
      return t.empty() || t.data_type() == kBool ? t : t.AsType(kFloat64);
    };
    const Tensor q = wide(c.q), k = wide(c.k), v = wide(c.v), mask = wide(c.mask);
    results_ = AttentionForward(q, k, v, mask, c.scale, c.causal, c.first_query);
    const bool has_mask = !mask.empty() && mask.data_type() != kBool;
    // Backward gets what others get.
    gradients_ = AttentionBackward(wide(c.dy), q, k, v, mask, wide(y()), wide(logsumexp()), {},
                                   c.scale, c.causal, c.first_query, 0, true, true, true, has_mask);
    // A score is a sum of D terms in at least float32, an error of which is a relative error of its
    // exponential.
    const double terms =
        std::abs(c.scale) * static_cast<double>(q.shape(3)) * Largest(q) * Largest(k);
    const int64_t longest = std::max({k.shape(2), q.shape(3), v.shape(3), q.shape(2) * q.shape(1)});
    bound_ = (type_ == kFloat64 ? 0x1p-52 : 0x1p-23) * 8 *
             std::sqrt(static_cast<double>(longest + 1)) * (1 + 2 * terms);
  }

  Tensor y() const { return results_[0].AsType(type_); }
  Tensor logsumexp() const { return results_[1].AsType(type_ == kFloat64 ? kFloat64 : kFloat32); }

  const std::vector<Tensor>& results() const { return results_; }
  const std::vector<Tensor>& gradients() const { return gradients_; }

  void ExpectForward(const std::vector<Tensor>& results) const {
    EXPECT_EQ(results[0].data_type(), type_);
    ExpectClose(results[0], results_[0], "y");
    ExpectClose(results[1], results_[1], "logsumexp");
  }

  void ExpectBackward(const std::vector<Tensor>& gradients) const {
    const char* const names[] = {"dq", "dk", "dv", "dmask"};
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!gradients[i].empty()) ExpectClose(gradients[i], gradients_[i], names[i]);
  }

 private:
  static double Largest(const Tensor& t) {
    double most = 0;
    for (const double v : Values(t))
      if (std::isfinite(v)) most = std::max(most, std::abs(v));
    return most;
  }
  void ExpectClose(const Tensor& got, const Tensor& want, const char* what) const {
    ASSERT_EQ(got.shape(), want.shape()) << what;
    const Vector values = Values(want);
    const double scale = std::max(1.0, Largest(want));  // sums of large terms may be small
    ExpectNear(got, values, Vector(values.size(), bound_ * scale), what);
  }

  DType type_;
  double bound_;
  std::vector<Tensor> results_, gradients_;
};

}  // namespace singa::test
