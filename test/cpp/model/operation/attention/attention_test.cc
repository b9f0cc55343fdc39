// Attention: what is not a number, threads, layouts. test/python/ops compares it with PyTorch.

#include "singa/operation/attention.h"

#include "model/operation/attention/attention_case.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::test {
namespace {

std::vector<Tensor> Forward(const AttentionCase& c) {
  return AttentionForward(c.q, c.k, c.v, c.mask, c.scale, c.causal, c.first_query);
}

void CheckQueriesWithoutKeys(int64_t keys) {
  Random random(94);
  for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
    AttentionCase c = AttentionCase::Of(random, dtype, {1, 2, 1}, {5, keys}, {8, 4});
    Vector used(5 * keys, 1), added(5 * keys, 0);
    std::fill_n(used.begin() + keys, 2 * keys, 0.0);  // queries 1 and 2
    std::fill_n(added.begin() + keys, 2 * keys, -kInf);
    for (const Tensor& mask :
         {FromValues({5, keys}, used).AsType(kBool), FromValues({5, keys}, added)}) {
      c.mask = mask;
      for (const Preference preference : kImplementations) {
        PreferenceScope scope(preference);
        const std::vector<Tensor> results = Forward(c);
        for (const int64_t query : {1, 2}) {
          const Tensor row = results[0].SliceAxis(2, query, query + 1);
          EXPECT_EQ(Values(row), Vector(8, 0.0));
          EXPECT_EQ(Values(results[1].SliceAxis(2, query, query + 1)), Vector(2, -kInf));
        }
      }
    }
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
    q[3 * 8 + 2] = kNan;
    c.q = FromValues(c.q.shape(), q);
    for (const Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const Vector y = Values(Forward(c)[0]);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 4 == 3) << i;
    }
  }
}

TEST(Attention, ResultsDoNotDependOnTheNumberOfThreads) {
  Random random(98);
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
    c.mask = RandomTensor(random, mask);
    SameOnThreads({2, 3, 8}, [&] {
      std::vector<Tensor> all = Forward(c);
      for (const Tensor& t : AttentionBackward(c.dy, c.q, c.k, c.v, c.mask, all[0], all[1], {},
                                               c.scale, true, 0, 0, true, true, true, true))
        all.push_back(t);
      return ValuesOf(all);
    });
  }
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

}  // namespace
}  // namespace singa::test
