#include "singa/operation/linalg.h"

#include "model/operation/conv/conv_naive.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::test {
namespace {

using LinalgTest = EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, LinalgTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return PreferenceName(info.param); });

TEST_P(LinalgTest, MatMulOfTransposedViewsCopiesNothing) {
  Random random(3);
  const Tensor a = RandomTensor(random, {30, 20}), b = RandomTensor(random, {40, 30});
  const Vector expected = Values(MatMul(a, b, true, true));
  const uint64_t before = DefaultDevice()->memory().allocations;
  const Tensor y = MatMul(a.Transpose(), b.Transpose());
  EXPECT_EQ(Values(y), expected);
  EXPECT_LE(DefaultDevice()->memory().allocations - before, 3u);  // y, perhaps a workspace; Values
}

TEST_P(LinalgTest, VectorsAreNotTransposed) {
  Random random(4);
  const Tensor a = RandomTensor(random, {2, 3}), u = RandomTensor(random, {2}),
               v = RandomTensor(random, {3});
  EXPECT_EQ(Values(MatMul(a, v, false, true)), Values(MatMul(a, v)));
  EXPECT_EQ(Values(MatMul(u, a, true, false)), Values(MatMul(u, a)));
}

TEST_P(LinalgTest, EmptyMatrices) {
  EXPECT_EQ(MatMul(Tensor({0, 3}), Tensor({3, 4})).shape(), Shape({0, 4}));
  EXPECT_EQ(MatMul(Tensor({5, 0, 3}), Tensor({3, 4})).shape(), Shape({5, 0, 4}));
  EXPECT_EQ(Values(MatMul(Tensor({2, 0}), Tensor({0, 3}))), Vector(6, 0.0));
  EXPECT_EQ(Values(LinearForward(Tensor({2, 0}), Tensor({0, 3}), FromValues({3}, {1, 2, 3}))),
            (Vector{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(Values(Gemm(Tensor({1, 0}), Tensor({0, 2}), FromValues({2}, {1, 2}), 1, 3)),
            (Vector{3, 6}));
  const std::vector<Tensor> gradients =
      LinearBackward(Tensor({0, 3}), Tensor({0, 2}), Tensor({2, 3}), false, true, true, true);
  EXPECT_EQ(gradients[0].shape(), Shape({0, 2}));
  EXPECT_EQ(Values(gradients[1]), Vector(6, 0.0));
  EXPECT_EQ(Values(gradients[2]), Vector(3, 0.0));
}

TEST(LinalgReferenceTest, SameBitsForAnyNumberOfThreads) {
  Random random(6);
  const Tensor a = RandomTensor(random, {3, 300, 90}), b = RandomTensor(random, {90, 600});
  const PreferenceScope scope(Preference::kReference);
  SameOnThreads({2, 3, 7}, [&] { return Values(MatMul(a, b)); });
}

}  // namespace
}  // namespace singa::test
