// Attention against its definition in float64, for all implementations, geometries, views and
// masks.

#include "singa/operation/attention.h"

#include "model/operation/attention/attention_naive.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"
#include "support.h"

namespace singa {
namespace {

using test::AttentionCase;
using test::Epsilon;
using test::ExpectError;
using test::ExpectNear;
using test::FromValues;
using test::kImplementations;
using test::NaiveAttention;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Values;
using Vector = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Tensor> Forward(const AttentionCase& c) {
  return AttentionForward(c.q, c.k, c.v, c.mask, c.scale, c.causal, c.first_query);
}

bool HasFloatMask(const AttentionCase& c) { return !c.mask.empty() && c.mask.data_type() != kBool; }

void CheckCase(const AttentionCase& c) {
  const NaiveAttention want(c);
  for (const Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const std::vector<Tensor> results = Forward(c);
    ASSERT_EQ(results.size(), 3u);
    EXPECT_TRUE(results[2].empty());
    want.ExpectForward(results);
    // Backward gets the same results everywhere, so its errors are its own.
    want.ExpectBackward(AttentionBackward(c.dy, c.q, c.k, c.v, c.mask, want.y_tensor(),
                                          want.logsumexp_tensor(), {}, c.scale, c.causal,
                                          c.first_query, 0, true, true, true, HasFloatMask(c)));
  }
}

TEST(Attention, IsTheDefinitionOverRandomGeometries) {
  Random random(91);
  constexpr DType kTypes[] = {kFloat32, kFloat32, kBFloat16, kFloat64, kFloat16};
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    const AttentionCase c = AttentionCase::Any(random, kTypes[random.Int(0, 4)]);
    SCOPED_TRACE(c.ToString());
    CheckCase(c);
  }
}

TEST(Attention, IsTheDefinitionOverManyTiles) {
  Random random(92);
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const bool causal : {false, true}) {
      AttentionCase c = AttentionCase::Of(random, dtype, {1, 2, 1}, {80, 150}, {33, 20});
      c.causal = causal;
      c.first_query = 70;
      SCOPED_TRACE(c.ToString());
      CheckCase(c);
      c = AttentionCase::Of(random, dtype, {1, 1, 1}, {65, 129}, {256, 255});
      c.causal = causal;
      SCOPED_TRACE(c.ToString());
      CheckCase(c);
    }
}

TEST(Attention, TheGradientOfTheMaskSumsWhatItBroadcasts) {
  Random random(101);
  for (const DType dtype : {kFloat32, kBFloat16, kFloat64})
    for (const auto& [queries, keys] : {AttentionCase::Lengths{70, 67}, {21, 18}})
      for (int which = 0; which < 24; ++which) {
        AttentionCase c = AttentionCase::Of(random, dtype, {4, 2, 1}, {queries, keys}, {5, 6});
        Shape shape{which / 8 == 2 ? 4 : which / 8 + 1, 2, queries, keys};
        for (int axis = 1; axis < 4; ++axis)
          if (which >> (axis - 1) & 1) shape[axis] = 1;
        c.mask = RandomTensor(random, shape, kFloat32);
        c.causal = which % 3 == 0;
        SCOPED_TRACE(c.ToString());
        CheckCase(c);
      }
  for (const auto& heads : {AttentionCase::Heads{1, 1, 1}, {1, 3, 1}, {9, 2, 2}}) {
    AttentionCase c = AttentionCase::Of(random, kFloat32, heads, {200, 130}, {8, 8});
    c.mask = RandomTensor(random, {200, 130}, kFloat64);
    SCOPED_TRACE(c.ToString());
    CheckCase(c);
  }
}

TEST(Attention, NothingToDo) {
  Random random(93);
  for (const auto& [batch, heads, queries, keys, dim, value_dim] :
       std::vector<std::array<int64_t, 6>>{{0, 2, 3, 4, 5, 6},
                                           {1, 0, 3, 4, 5, 6},
                                           {2, 2, 0, 4, 5, 6},
                                           {2, 2, 3, 0, 5, 6},
                                           {2, 2, 3, 4, 0, 6},
                                           {2, 2, 3, 4, 5, 0}}) {
    const AttentionCase c = AttentionCase::Of(random, kFloat32, {batch, heads, heads},
                                              {queries, keys}, {dim, value_dim});
    SCOPED_TRACE(c.ToString());
    CheckCase(c);
    AttentionCase masked = c;
    masked.mask = RandomTensor(random, {1, 1, queries, keys});
    CheckCase(masked);
    masked.mask = RandomTensor(random, {1, 1, 1, 1});
    CheckCase(masked);
  }
}

void CheckQueriesWithoutKeys(int64_t keys) {
  Random random(94);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    AttentionCase c = AttentionCase::Of(random, dtype, {1, 2, 1}, {5, keys}, {8, 4});
    Vector mask(5 * keys, 1);
    std::fill_n(mask.begin() + keys, 2 * keys, 0.0);  // queries 1 and 2
    c.mask = FromValues({5, keys}, mask).AsType(kBool);
    CheckCase(c);
    for (double& value : mask) value = value != 0 ? 0 : -kInf;
    c.mask = FromValues({5, keys}, mask);
    CheckCase(c);
    for (const Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const std::vector<Tensor> results = Forward(c);
      for (const int64_t query : {1, 2}) {
        const Tensor row = results[0].SliceAxis(2, query, query + 1);
        EXPECT_EQ(Values(row), Vector(8, 0.0));
        EXPECT_EQ(Values(results[1].SliceAxis(2, query, query + 1)), Vector(2, -kInf));
      }
    }
    c.mask = Tensor();
    c.causal = true;
    c.first_query = -3;  // queries 0 to 2
    CheckCase(c);
  }
}

TEST(Attention, QueriesWithoutKeysGiveZeros) {
  CheckQueriesWithoutKeys(70);
  CheckQueriesWithoutKeys(20);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Random random(95);
  for (const DType dtype : {kFloat32, kBFloat16})
    for (const int64_t keys : {140, 30}) {
      AttentionCase c = AttentionCase::Of(random, dtype, {1, 2, 2}, {keys / 2, keys}, {16, 8});
      c.scale = 50;
      for (const Preference preference : kImplementations) {
        PreferenceScope scope(preference);
        for (const double value : Values(Forward(c)[0])) ASSERT_TRUE(std::abs(value) <= 1.0001);
      }
    }
}

TEST(Attention, NotANumberStaysInItsRow) {
  Random random(96);
  for (const int64_t keys : {80, 20}) {
    AttentionCase c = AttentionCase::Of(random, kFloat32, {1, 1, 1}, {keys - 10, keys}, {8, 4});
    Vector q = Values(c.q);
    q[3 * 8 + 2] = std::numeric_limits<double>::quiet_NaN();
    c.q = FromValues(c.q.shape(), q);
    for (const Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const Vector y = Values(Forward(c)[0]);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 4 == 3) << i;
    }
  }
}

void CheckDropout(int64_t keys) {
  Random random(97);
  const int64_t queries = 20;
  for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
    // Values of the unit matrix give the weights themselves.
    AttentionCase c = AttentionCase::Of(random, dtype, {2, 4, 2}, {queries, keys}, {8, keys});
    Vector unit(4 * keys * keys);
    for (int64_t i = 0; i < 4 * keys; ++i) unit[i * keys + i % keys] = 1;
    c.v = FromValues(c.v.shape(), unit, dtype);
    Vector first;
    for (const Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      DefaultDevice()->SetRandSeed(5);
      Scalars skipped;
      DefaultDevice()->TakeRandom(3, &skipped);  // a position that is not a multiple of four
      const std::vector<Tensor> plain = Forward(c);
      const std::vector<Tensor> results =
          AttentionForward(c.q, c.k, c.v, {}, c.scale, false, 0, 0.25);
      const Vector weights = Values(plain[0]), kept = Values(results[0]);
      Vector z(kept.size());
      double dropped = 0;
      for (size_t i = 0; i < kept.size(); ++i) {
        z[i] = kept[i] != 0 ? 1 / 0.75 : 0;
        dropped += kept[i] == 0;
        EXPECT_NEAR(kept[i], weights[i] * z[i], 2 * Epsilon(dtype) * kept[i]);
      }
      const auto count = static_cast<double>(z.size());
      EXPECT_NEAR(dropped / count, 0.25, 5 * std::sqrt(0.25 * 0.75 / count));
      if (first.empty()) first = z;
      EXPECT_EQ(z, first) << "implementations drop different weights";
      AttentionCase with = c;
      with.z = z;
      const NaiveAttention want(with);
      want.ExpectForward(results);
      want.ExpectBackward(AttentionBackward(c.dy, c.q, c.k, c.v, {}, want.y_tensor(),
                                            want.logsumexp_tensor(), results[2], c.scale, false, 0,
                                            0.25));
    }
  }
}

TEST(Attention, DropoutKeepsTheExpectedValueAndItsGradients) {
  CheckDropout(70);
  CheckDropout(50);
}

TEST(Attention, ResultsDoNotDependOnTheNumberOfThreads) {
  Random random(98);
  const int before = NumThreads();
  struct Problem {
    AttentionCase::Heads heads;
    AttentionCase::Lengths lengths;
    Shape mask;
  };
  for (const auto& [heads, lengths, mask] : {Problem{{1, 1, 1}, {200, 300}, {200, 300}},
                                             {{1, 3, 1}, {200, 300}, {200, 300}},
                                             {{1, 16, 1}, {200, 300}, {200, 300}},
                                             {{60, 3, 3}, {49, 49}, {20, 3, 49, 49}},
                                             {{60, 3, 3}, {49, 49}, {49, 49}},
                                             {{1, 12, 12}, {49, 49}, {12, 49, 49}}}) {
    AttentionCase c = AttentionCase::Of(random, kFloat32, heads, lengths, {32, 32});
    c.causal = true;
    c.mask = RandomTensor(random, mask);
    std::vector<Vector> first;
    for (const int threads : {1, 2, 3, 8}) {
      SetNumThreads(threads);
      std::vector<Tensor> all = Forward(c);
      for (const Tensor& t : AttentionBackward(c.dy, c.q, c.k, c.v, c.mask, all[0], all[1], {},
                                               c.scale, true, 0, 0, true, true, true, true))
        all.push_back(t);
      std::vector<Vector> values;
      for (const Tensor& t : all)
        if (!t.empty()) values.push_back(Values(t));
      if (first.empty()) first = values;
      EXPECT_EQ(values, first) << threads << " threads";
    }
  }
  SetNumThreads(before);
}

void CheckOnlyWhatIsNeeded(int64_t keys) {
  Random random(99);
  AttentionCase c = AttentionCase::Of(random, kFloat32, {2, 4, 2}, {9, keys}, {8, 12});
  c.mask = RandomTensor(random, {4, 9, keys});
  for (const Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const std::vector<Tensor> results = Forward(c);
    const auto backward = [&](bool q, bool k, bool v, bool mask) {
      return AttentionBackward(c.dy, c.q, c.k, c.v, c.mask, results[0], results[1], {}, c.scale,
                               false, 0, 0, q, k, v, mask);
    };
    const std::vector<Tensor> all = backward(true, true, true, true);
    for (int i = 0; i < 4; ++i) {
      const std::vector<Tensor> one = backward(i == 0, i == 1, i == 2, i == 3);
      for (int j = 0; j < 4; ++j) {
        EXPECT_EQ(one[j].empty(), i != j);
        if (i == j) {
          EXPECT_EQ(Values(one[j]), Values(all[j]));
        }
      }
    }
    for (const Tensor& t : backward(false, false, false, false)) EXPECT_TRUE(t.empty());
  }
}

TEST(Attention, OnlyWhatIsNeeded) {
  CheckOnlyWhatIsNeeded(70);
  CheckOnlyWhatIsNeeded(21);
}

TEST(Attention, HeadsThatWereSplitOffAreMergedByAView) {
  Random random(100);
  const Tensor packed = RandomTensor(random, {2, 9, 4, 8});  // (B, N, H, D)
  const Tensor q = packed.Transpose({0, 2, 1, 3});
  const std::vector<Tensor> results = AttentionForward(q, q, q, {}, 1);
  const std::vector<Tensor> gradients =
      AttentionBackward(q, q, q, q, {}, results[0], results[1], {}, 1);
  for (const Tensor& t : {results[0], gradients[0], gradients[1], gradients[2]}) {
    EXPECT_EQ(t.shape(), (Shape{2, 4, 9, 8}));
    EXPECT_TRUE(t.Transpose({0, 2, 1, 3}).is_contiguous());
  }
}

TEST(Attention, RefusesWhatIsWrong) {
  using Error = std::invalid_argument;
  const Tensor q({2, 4, 3, 8}), k({2, 2, 5, 8}), v({2, 2, 5, 6});
  const auto forward = [&](const Tensor& a, const Tensor& b, const Tensor& c,
                           const Tensor& mask = {}, double scale = 1, double dropout = 0,
                           int64_t first_query = 0) {
    AttentionForward(a, b, c, mask, scale, true, first_query, dropout);
  };
  ExpectError<Error>([&] { forward({}, k, v); }, "[AttentionForward] q is an empty tensor");
  ExpectError<TypeError>([&] { forward(q.AsType(kInt64), k, v); },
                         "[AttentionForward] q must be of a float type");
  ExpectError<Error>(
      [&] {
        forward(Tensor({4, 3, 8}), k, v);
      },
      "q must have shape (B, H, N, D), got (4, 3, 8)");
  ExpectError<Error>(
      [&] {
        forward(q, Tensor({2, 2, 5, 7}), v);
      },
      "k must have shape (2, 2, 5, 8)");
  ExpectError<Error>(
      [&] {
        forward(q, k, Tensor({2, 2, 4, 6}));
      },
      "v must have shape (2, 2, 5, 6)");
  ExpectError<Error>(
      [&] {
        forward(q, Tensor({2, 3, 5, 8}), Tensor({2, 3, 5, 6}));
      },
      "the 3 heads of k and v must divide the 4 heads of q");
  ExpectError<TypeError>([&] { forward(q, k.AsType(kFloat64), v); }, "k must be float32");
  ExpectError<TypeError>(
      [&] {
        forward(q, k, v, Full({3, 5}, 1, nullptr, kUInt8));
      },
      "mask must be bool or of a float type, got uint8");
  ExpectError<Error>([&] { forward(q, k, v, Tensor({3, 4})); }, "[AttentionForward]");
  ExpectError<Error>(
      [&] {
        forward(q, k, v, Tensor({1, 2, 4, 3, 5}));
      },
      "mask must broadcast to (2, 4, 3, 5)");
  ExpectError<Error>([&] { forward(q, k, v, {}, kInf); }, "scale must be finite");
  ExpectError<Error>([&] { forward(q, k, v, {}, 1, 1); }, "dropout 1 is not in [0, 1)");
  ExpectError<Error>([&] { forward(q, k, v, {}, 1, 0, int64_t{1} << 60); }, "first_query");
  const std::vector<Tensor> results = AttentionForward(q, k, v, {}, 1);
  const Tensor &y = results[0], &logsumexp = results[1];
  ExpectError<Error>([&] { AttentionBackward(q, q, k, v, {}, y, logsumexp, {}, 1); },
                     "[AttentionBackward] dy must have the shape of y (2, 4, 3, 6)");
  ExpectError<Error>([&] { AttentionBackward(y, q, k, v, {}, y, y, {}, 1); },
                     "logsumexp must have shape (2, 4, 3)");
  ExpectError<Error>([&] { AttentionBackward(y, q, k, v, {}, y, logsumexp, {}, 1, false, 0, 0.5); },
                     "draw is an empty tensor");
  const auto mask_gradient = [&](const Tensor& mask) {
    AttentionBackward(y, q, k, v, mask, y, logsumexp, {}, 1, false, 0, 0, true, true, true, true);
  };
  ExpectError<Error>([&] { mask_gradient({}); }, "[AttentionBackward] mask is an empty tensor");
  ExpectError<TypeError>(
      [&] {
        mask_gradient(Full({3, 5}, 1, nullptr, kBool));
      },
      "[AttentionBackward] mask must be of a float type");
}

}  // namespace
}  // namespace singa
