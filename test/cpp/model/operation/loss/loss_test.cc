#include "singa/operation/loss.h"

#include "model/operation/padded_layout.h"
#include "support.h"

namespace singa::test {
namespace {

// Rounding error for results of magnitude 1.
double Tolerance(DType dtype) { return dtype == kFloat64 ? 1e-13 : 4e-6; }

void ExpectLoss(const Tensor& loss, double want, const char* what) {
  EXPECT_EQ(loss.shape(), Shape{});
  ExpectNear(loss, {want}, {Tolerance(loss.data_type()) * (1 + std::abs(want))}, what);
}

TEST(SoftmaxCrossEntropy, ExtremeScores) {
  const Tensor x = FromValues({3, 3}, {1e4, 0, -1e4, -1e30, 0, 0, -kInf, 1, 1});
  const Tensor t = FromValues({3}, {0, 1, 2}, kInt32);
  const std::vector<Tensor> out = SoftmaxCrossEntropyForward(x, t);
  ExpectLoss(out[0], 2 * std::log(2.0) / 3, "loss");
  ExpectNear(out[1], {1, 0, 0, 0, 0.5, 0.5, 0, 0.5, 0.5}, Vector(9, 1e-6), "probabilities");
  const Tensor wrong = FromValues({3}, {2, 0, 0}, kInt32);
  EXPECT_EQ(SoftmaxCrossEntropyForward(x, wrong)[0].Item(), kInf);
  const Tensor nan = FromValues({1, 2}, {std::nan(""), 0});
  EXPECT_TRUE(std::isnan(SoftmaxCrossEntropyForward(nan, FromValues({1}, {1}, kInt32))[0].Item()));
}

TEST(SoftmaxCrossEntropy, AnyNumberOfThreadsGivesTheSameBits) {
  Random random(3);
  const Tensor x = RandomTensor(random, {1025, 101});
  Vector labels(1025);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<double>(i % 101);
  const Tensor t = FromValues({1025}, labels, kInt64);
  const std::vector<Vector> results = SameOnThreads({3}, [&] {
    const std::vector<Tensor> out = SoftmaxCrossEntropyForward(x, t, 0.1);
    return ValuesOf({out[0], out[1], SoftmaxCrossEntropyBackward(Full({}, 1), out[1], t, 0.1),
                     MeanSquareErrorForward(x, x.AsType(kBFloat16))});
  });
  const Tensor padded = PaddedLayout::Of(x);
  EXPECT_EQ(Values(SoftmaxCrossEntropyForward(padded, t, 0.1)[0]), results[0]);
}

TEST(PairLoss, Clamps) {
  const Tensor p = FromValues({1, 3}, {0, 1e-12, 1}), t = Full({1, 3}, 1);
  ExpectLoss(CrossEntropyForward(p, t), -2 * std::log(1e-10), "cross entropy");
  const Tensor dy = Full({}, 1);
  ExpectNear(CrossEntropyBackward(dy, p, t), {-1e10, -1e10, -1}, {1e4, 1e4, 0}, "slope");
  const Tensor ends = FromValues({1, 4}, {0, 1, 1, 0}), truth = FromValues({1, 4}, {1, 0, 1, 0});
  ExpectLoss(BinaryCrossEntropyForward(ends, truth), 200, "binary cross entropy");
  ExpectNear(BinaryCrossEntropyBackward(dy, ends, truth), {-1e12, 1e12, 0, 0}, {1e6, 1e6, 0, 0},
             "slope");
}

TEST(PairLoss, RankingHasTwoGradients) {
  const Tensor positive = FromValues({4}, {1, 0, 0.5, 0.25}),
               negative = FromValues({4}, {0, 1, 0, 0});
  const std::vector<Tensor> d = RankingLossBackward(Full({}, 4), positive, negative, 0.25);
  EXPECT_EQ(Values(d[0]), (Vector{0, -1, 0, 0}));  // zero gradient where the margin is just met
  EXPECT_EQ(Values(d[1]), (Vector{0, 1, 0, 0}));
  EXPECT_NEAR(RankingLossForward(positive, negative).Item(), 1.2 / 4, 1e-7);
  const std::vector<Tensor> mixed =
      RankingLossBackward(Full({}, 4), positive, negative.AsType(kFloat64), 0.25);
  EXPECT_EQ(mixed[1].data_type(), kFloat64);
}

}  // namespace
}  // namespace singa::test
