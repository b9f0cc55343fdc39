#include "singa/operation/loss.h"

#include "model/operation/padded_layout.h"
#include "singa/core/threads.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::ExpectError;
using test::ExpectNear;
using test::FromValues;
using test::PaddedLayout;
using test::Random;
using test::RandomTensor;
using test::Values;

using V = std::vector<double>;
using Real = long double;
using Loss = std::function<double(const V& x)>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kFloats[] = {kFloat64, kFloat32, kBFloat16, kFloat16};

// Rounding error for results of magnitude 1.
double Tolerance(DType dtype) { return dtype == kFloat64 ? 1e-13 : 4e-6; }

// slope · d loss / dx by central differences.
V Differences(const Loss& loss, V x, double slope) {
  const double h = 1e-5;
  V result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + h;
    const double above = loss(x);
    x[i] = at - h;
    const double below = loss(x);
    x[i] = at;
    result.push_back(slope * (above - below) / (2 * h));
  }
  return result;
}

void ExpectLoss(const Tensor& loss, double want, const char* what) {
  EXPECT_EQ(loss.shape(), Shape{});
  ExpectNear(loss, {want}, {Tolerance(loss.data_type()) * (1 + std::abs(want))}, what);
}

// −Σ q·log softmax(x) / N with q = (1 − s)·t + s / C.
double SoftmaxCrossEntropy(const V& x, const V& t, size_t classes, double s) {
  double loss = 0;
  for (size_t row = 0; row < x.size(); row += classes) {
    double sum = 0;
    for (size_t c = 0; c < classes; ++c) sum += std::exp(x[row + c]);
    for (size_t c = 0; c < classes; ++c) {
      const double q = (1 - s) * t[row + c] + s / static_cast<double>(classes);
      loss -= q * (x[row + c] - std::log(sum));
    }
  }
  return loss / (static_cast<double>(x.size()) / static_cast<double>(classes));
}

V OneHot(const std::vector<int>& labels, size_t classes) {
  V t(labels.size() * classes);
  for (size_t i = 0; i < labels.size(); ++i) t[i * classes + static_cast<size_t>(labels[i])] = 1;
  return t;
}

TEST(SoftmaxCrossEntropy, AgainstItsFormulaAndDifferences) {
  Random random(1);
  for (const DType dtype : kFloats) {
    for (const int64_t classes : {1, 2, 10, 33}) {
      for (const double s : {0.0, 0.1, 1.0}) {
        const int64_t rows = 7;
        const Tensor x = AnyTensor(random, {rows, classes}, dtype, -4, 4);
        // Arbitrary weights, which need not sum to 1.
        const Tensor t = AnyTensor(random, {rows, classes}, kFloat32, 0, 1);
        const V vx = Values(x), vt = Values(t);
        const std::vector<Tensor> out = SoftmaxCrossEntropyForward(x, t, s);
        ExpectLoss(out[0], SoftmaxCrossEntropy(vx, vt, classes, s), "loss");
        EXPECT_EQ(out[0].data_type(), dtype == kFloat64 ? kFloat64 : kFloat32);
        EXPECT_EQ(out[1].data_type(), dtype);
        V p(vx.size());
        for (size_t i = 0; i < p.size(); ++i) {
          double sum = 0;
          for (int64_t c = 0; c < classes; ++c)
            sum += std::exp(vx[i / classes * classes + c] - vx[i]);
          p[i] = 1 / sum;
        }
        ExpectNear(out[1], p, V(p.size(), Tolerance(dtype)), "probabilities");
        if (dtype != kFloat64) continue;
        const Tensor dx =
            SoftmaxCrossEntropyBackward(Full({1}, -3, nullptr, kFloat32), out[1], t, s);
        const Loss loss = [&](const V& at) { return SoftmaxCrossEntropy(at, vt, classes, s); };
        ExpectNear(dx, Differences(loss, vx, -3), V(p.size(), 1e-7), "gradient");
      }
    }
  }
}

TEST(SoftmaxCrossEntropy, ClassNumbersAreOneHot) {
  Random random(2);
  const std::vector<int> labels{3, 0, 4, 4, 1};
  const V numbers(labels.begin(), labels.end());
  const Tensor one_hot = FromValues({5, 5}, OneHot(labels, 5));
  for (const DType dtype : kFloats) {
    const Tensor x = AnyTensor(random, {5, 5}, dtype, -4, 4);
    const Tensor dy = Full({}, 2, nullptr, dtype);
    const std::vector<Tensor> want = SoftmaxCrossEntropyForward(x, one_hot, 0.2);
    const V gradient = Values(SoftmaxCrossEntropyBackward(dy, want[1], one_hot, 0.2));
    for (const DType type : {kInt32, kInt64, kUInt8, kFloat32, kBFloat16}) {
      for (const Shape& shape : {Shape{5}, Shape{5, 1}}) {
        const Tensor t = FromValues(shape, numbers, type);
        const std::vector<Tensor> got = SoftmaxCrossEntropyForward(x, t, 0.2);
        EXPECT_EQ(Values(got[0]), Values(want[0])) << DTypeName(type);
        EXPECT_EQ(Values(got[1]), Values(want[1]));
        const Tensor dx = SoftmaxCrossEntropyBackward(dy, got[1], t, 0.2);
        EXPECT_EQ(dx.data_type(), dtype);
        EXPECT_EQ(dx.shape(), x.shape());
        // The sum of a smoothed one-hot target is 1 up to rounding.
        ExpectNear(dx, gradient, V(25, Epsilon(dtype) + Epsilon(kFloat32)), "gradient");
      }
    }
  }
  // Integers of x's shape are one-hot.
  const Tensor x = RandomTensor(random, {5, 5});
  EXPECT_EQ(Values(SoftmaxCrossEntropyForward(x, one_hot.AsType(kInt32))[0]),
            Values(SoftmaxCrossEntropyForward(x, one_hot)[0]));
}

TEST(SoftmaxCrossEntropy, ExtremeScores) {
  const Tensor x = FromValues({3, 3}, {1e4, 0, -1e4, -1e30, 0, 0, -kInf, 1, 1});
  const Tensor t = FromValues({3}, {0, 1, 2}, kInt32);
  const std::vector<Tensor> out = SoftmaxCrossEntropyForward(x, t);
  ExpectLoss(out[0], 2 * std::log(2.0) / 3, "loss");
  ExpectNear(out[1], {1, 0, 0, 0, 0.5, 0.5, 0, 0.5, 0.5}, V(9, 1e-6), "probabilities");
  const Tensor wrong = FromValues({3}, {2, 0, 0}, kInt32);
  EXPECT_EQ(SoftmaxCrossEntropyForward(x, wrong)[0].Item(), kInf);
  const Tensor nan = FromValues({1, 2}, {std::nan(""), 0});
  EXPECT_TRUE(std::isnan(SoftmaxCrossEntropyForward(nan, FromValues({1}, {1}, kInt32))[0].Item()));
}

TEST(SoftmaxCrossEntropy, AnyNumberOfThreadsGivesTheSameBits) {
  Random random(3);
  const Tensor x = RandomTensor(random, {1025, 101});
  V labels(1025);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<double>(i % 101);
  const Tensor t = FromValues({1025}, labels, kInt64);
  const int threads = NumThreads();
  std::vector<V> results[2];
  for (const int n : {1, 3}) {
    SetNumThreads(n);
    const std::vector<Tensor> out = SoftmaxCrossEntropyForward(x, t, 0.1);
    results[n == 3] = {Values(out[0]), Values(out[1]),
                       Values(SoftmaxCrossEntropyBackward(Full({}, 1), out[1], t, 0.1)),
                       Values(MeanSquareErrorForward(x, x.AsType(kBFloat16)))};
  }
  SetNumThreads(threads);
  EXPECT_EQ(results[0], results[1]);
  const Tensor padded = PaddedLayout::Of(x);
  EXPECT_EQ(Values(SoftmaxCrossEntropyForward(padded, t, 0.1)[0]), results[0][0]);
}

TEST(SoftmaxCrossEntropy, Errors) {
  const Tensor x = Full({2, 3}, 0), dy = Full({}, 1);
  const auto forward = [&](const Tensor& t) {
    return [&x, t] { SoftmaxCrossEntropyForward(x, t); };
  };
  using Invalid = std::invalid_argument;
  ExpectError<Invalid>(forward(FromValues({2}, {0, 3}, kInt32)), "t[1] is 3");
  ExpectError<Invalid>(forward(FromValues({2}, {-1, 7}, kInt64)), "t[0] is -1");
  ExpectError<Invalid>(forward(FromValues({2}, {0.5, 0})), "t[0] is 0.5");
  ExpectError<Invalid>(forward(Full({3}, 0)), "class numbers (2)");
  ExpectError<Invalid>(forward(Tensor()), "t is an empty");
  ExpectError<Invalid>([&] { SoftmaxCrossEntropyForward(Full({6}, 0), x); }, "(N, C)");
  ExpectError<Invalid>([&] { SoftmaxCrossEntropyForward(x, x, 1.5); }, "smoothing");
  ExpectError<TypeError>([&] { SoftmaxCrossEntropyForward(x.AsType(kInt32), x); }, "float type");
  ExpectError<Invalid>([&] { SoftmaxCrossEntropyBackward(x, x, x); }, "dy");
  ExpectError<Invalid>(
      [&] {
        SoftmaxCrossEntropyBackward(dy, x, FromValues({2}, {0, 5}, kInt32));
      },
      "[SoftmaxCrossEntropyBackward] t[1]");
  EXPECT_TRUE(std::isnan(
      SoftmaxCrossEntropyForward(Tensor(Shape{0, 3}), Tensor(Shape{0}, nullptr, kInt32))[0]
          .Item()));
}

struct Pair {
  const char* name;
  double low, high;
  Real (*term)(Real x, Real t);
  bool mean_of_all;  // over all elements, else over the first axis
  Tensor (*forward)(const Tensor&, const Tensor&);
  Tensor (*backward)(const Tensor&, const Tensor&, const Tensor&);
};

constexpr double kMargin = 0.3;
const Pair kPairs[] = {
    {"cross_entropy", 0.05, 0.95, [](Real x, Real t) { return -t * std::log(x); }, false,
     CrossEntropyForward, CrossEntropyBackward},
    {"binary_cross_entropy", 0.05, 0.95,
     [](Real x, Real t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); }, false,
     BinaryCrossEntropyForward, BinaryCrossEntropyBackward},
    {"mse", -2, 2, [](Real x, Real t) { return (x - t) * (x - t); }, true, MeanSquareErrorForward,
     MeanSquareErrorBackward},
    {"ranking", -1, 1, [](Real x, Real t) { return std::max<Real>(0, kMargin - x + t); }, true,
     [](const Tensor& x, const Tensor& t) { return RankingLossForward(x, t, kMargin); },
     [](const Tensor& dy, const Tensor& x, const Tensor& t) {
       return RankingLossBackward(dy, x, t, kMargin)[0];
     }},
};

TEST(PairLoss, AgainstFormulasAndDifferences) {
  Random random(4);
  for (const Pair& pair : kPairs) {
    for (const DType dtype : kFloats) {
      for (const Shape& shape : {Shape{}, Shape{9}, Shape{5, 7}, Shape{3, 20, 31}}) {
        const Tensor x = AnyTensor(random, shape, dtype, pair.low, pair.high);
        const Tensor t = AnyTensor(random, shape, kFloat32, pair.low, pair.high);
        const V vx = Values(x), vt = Values(t);
        const double count = static_cast<double>(pair.mean_of_all    ? shape.Count()
                                                 : shape.rank() == 0 ? 1
                                                                     : shape[0]);
        Real sum = 0;
        for (size_t i = 0; i < vx.size(); ++i) sum += pair.term(vx[i], vt[i]);
        ExpectLoss(pair.forward(x, t), static_cast<double>(sum / count), pair.name);
        const Tensor dx = pair.backward(Full({1, 1}, -2, nullptr, kBFloat16), x, t);
        EXPECT_EQ(dx.data_type(), dtype);
        V want, tolerance;
        for (size_t i = 0; i < vx.size(); ++i) {
          const Real h = 1e-6L, at = vx[i];
          const Real slope = (pair.term(at + h, vt[i]) - pair.term(at - h, vt[i])) / (2 * h);
          want.push_back(static_cast<double>(-2 * slope / count));
          tolerance.push_back((dtype == kFloat64 ? 1e-8 : 1e-5) * (1 + std::abs(want.back())));
        }
        ExpectNear(dx, want, tolerance, pair.name);
      }
    }
    const Tensor x(Shape{2, 3}), dy = Full({}, 1);
    ExpectError<std::invalid_argument>([&] { pair.forward(x, Tensor(Shape{3})); }, "(3,)");
    ExpectError<TypeError>([&] { pair.forward(x.AsType(kInt32), x); }, "float type");
    ExpectError<std::invalid_argument>([&] { pair.backward(x, x, x); }, "one element");
  }
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
  EXPECT_EQ(Values(d[0]), (V{0, -1, 0, 0}));  // zero gradient where the margin is just met
  EXPECT_EQ(Values(d[1]), (V{0, 1, 0, 0}));
  EXPECT_NEAR(RankingLossForward(positive, negative).Item(), 1.2 / 4, 1e-7);
  const std::vector<Tensor> mixed =
      RankingLossBackward(Full({}, 4), positive, negative.AsType(kFloat64), 0.25);
  EXPECT_EQ(mixed[1].data_type(), kFloat64);
}

TEST(PairLoss, IntegerTargets) {
  const Tensor x = FromValues({2, 2}, {0.5, 0.25, 0.75, 0.125});
  const Tensor t = FromValues({2, 2}, {1, 0, 0, 1}, kInt32);
  EXPECT_EQ(MeanSquareErrorForward(x, t).Item(),
            MeanSquareErrorForward(x, t.AsType(kFloat32)).Item());
  EXPECT_EQ(Values(MeanSquareErrorBackward(Full({}, 1), x, t)), (V{-0.25, 0.125, 0.375, -0.4375}));
}

}  // namespace
}  // namespace singa
