#include "singa/operation/random.h"

#include "model/formula/philox_fill.h"
#include "model/operation/padded_layout.h"
#include "singa/core/device.h"
#include "singa/operation/dropout.h"
#include "support.h"

namespace singa::test {
namespace {

constexpr DType kFloats[] = {kFloat32, kFloat64, kBFloat16, kFloat16};

struct Moments {
  double mean = 0, variance = 0, skew = 0, min = 1e300, max = -1e300;
};
Moments MomentsOf(const Vector& x) {
  Moments m;
  const auto n = static_cast<double>(x.size());
  for (double v : x) {
    m.mean += v / n;
    m.min = std::min(m.min, v);
    m.max = std::max(m.max, v);
  }
  for (double v : x) {
    m.variance += (v - m.mean) * (v - m.mean) / n;
    m.skew += std::pow(v - m.mean, 3) / n;
  }
  return m;
}

// Bounds are five standard deviations of the estimate, plus rounding of 16-bit types.
TEST(Random, Uniform) {
  for (const DType dtype : kFloats) {
    DefaultDevice()->SetRandSeed(11);
    const Tensor t(Shape{300, 301}, nullptr, dtype);
    Uniform(-2, 4, t);
    const Moments m = MomentsOf(Values(t));
    const double n = 300 * 301, eps = Epsilon(dtype);
    EXPECT_NEAR(m.mean, 1, 5 * std::sqrt(3 / n) + 4 * eps);
    EXPECT_NEAR(m.variance, 3, 5 * std::sqrt(7.2 / n) + 8 * eps);
    EXPECT_GE(m.min, -2);
    EXPECT_LT(m.max, 4) << DTypeName(dtype);
    EXPECT_LT(m.min, -2 + 0.05);
    EXPECT_GT(m.max, 4 - 0.05);
  }
}

TEST(Random, UniformStaysBelowItsEnd) {
  for (const DType dtype : kFloats) {
    for (const auto& [low, high] : {std::pair{0.0, 1.0},
                                    {0.0, 0.3},
                                    {-1.0, 0.0},
                                    {1000.0, 1001.0},
                                    {-3.0, -2.9},
                                    {0.0, 1e-30}}) {
      if (dtype == kFloat16 && high == 1e-30) continue;
      const Tensor t(Shape{70000}, nullptr, dtype);
      Uniform(low, high, t);
      const double first = Values(Full({}, low, nullptr, dtype))[0];
      for (double v : Values(t)) {
        ASSERT_LT(v, high) << DTypeName(dtype);
        ASSERT_GE(v, first) << DTypeName(dtype);
      }
    }
  }
  const Tensor t(Shape{5});
  Uniform(2, 2, t);
  EXPECT_EQ(Values(t), (Vector{2, 2, 2, 2, 2}));
}

TEST(Random, Gaussian) {
  for (const DType dtype : kFloats) {
    DefaultDevice()->SetRandSeed(12);
    const Tensor t(Shape{90001}, nullptr, dtype);
    Gaussian(3, 2, t);
    const Vector x = Values(t);
    const Moments m = MomentsOf(x);
    const double n = 90001, eps = Epsilon(dtype);
    EXPECT_NEAR(m.mean, 3, 5 * 2 / std::sqrt(n) + 4 * eps);
    EXPECT_NEAR(m.variance, 4, 5 * 4 * std::sqrt(2 / n) + 8 * eps);
    EXPECT_NEAR(m.skew, 0, 5 * 8 * std::sqrt(15 / n) + 16 * eps);
    // Fractions within one and two standard deviations; neighbouring values are independent.
    double one = 0, two = 0, product = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      one += std::abs(x[i] - 3) < 2;
      two += std::abs(x[i] - 3) < 4;
      if (i) product += (x[i] - 3) * (x[i - 1] - 3) / 4;
    }
    EXPECT_NEAR(one / n, std::erf(std::sqrt(0.5)), 0.009 + 4 * eps);
    EXPECT_NEAR(two / n, std::erf(std::sqrt(2.0)), 0.004 + 2 * eps);
    EXPECT_NEAR(product / n, 0, 5 / std::sqrt(n) + 4 * eps);
    EXPECT_GT(m.max, 3 + 2 * 3.5);  // there are tails
  }
}

TEST(Random, GaussianIsBoxMuller) {
  DefaultDevice()->SetRandSeed(7);
  const Tensor t(Shape{6}, nullptr, kFloat32);
  Gaussian(0, 1, t);
  uint32_t words[6];
  PhiloxFill(7, 0, 6, words);
  const Vector x = Values(t);
  for (int i = 0; i < 6; i += 2) {
    const double u = (words[i] + 0.5) * 0x1p-32, v = (words[i + 1] + 0.5) * 0x1p-32;
    EXPECT_NEAR(x[i], std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v), 1e-5);
    EXPECT_NEAR(x[i + 1], std::sqrt(-2 * std::log(u)) * std::sin(2 * M_PI * v), 1e-5);
  }
}

TEST(Random, Bernoulli) {
  for (const DType dtype : kFloats) {
    const Tensor t(Shape{100000}, nullptr, dtype);
    Bernoulli(0.3, t);
    double ones = 0;
    for (double v : Values(t)) {
      ASSERT_TRUE(v == 0 || v == 1);
      ones += v;
    }
    EXPECT_NEAR(ones / 1e5, 0.3, 5 * std::sqrt(0.21 / 1e5));
    Bernoulli(0, t);
    EXPECT_EQ(MomentsOf(Values(t)).max, 0);
    Bernoulli(1, t);
    EXPECT_EQ(MomentsOf(Values(t)).min, 1);
  }
}

TEST(Random, OneSequenceForAllThreadsViewsAndPieces) {
  const DevicePtr device = DefaultDevice();
  SameOnThreads({3}, [&] {
    device->SetRandSeed(5);
    std::vector<Vector> results;
    for (const DType dtype : {kFloat32, kFloat64}) {
      const Tensor t(Shape{50003}, nullptr, dtype);
      Uniform(0, 1, t);
      results.push_back(Values(t));
      Gaussian(0, 1, t);
      results.push_back(Values(t));
    }
    return results;
  });

  // The second of two calls continues the sequence of the first.
  Tensor whole(Shape{1001});
  device->SetRandSeed(9);
  Uniform(0, 1, whole);
  Tensor halves(Shape{1001});
  device->SetRandSeed(9);
  Uniform(0, 1, halves.SliceAxis(0, 0, 333));
  const std::vector<uint64_t> state = device->random_state();
  Uniform(0, 1, halves.SliceAxis(0, 333, 1001));
  EXPECT_EQ(Values(halves), Values(whole));
  device->set_random_state(state);
  const Tensor again(Shape{668});
  Uniform(0, 1, again);
  EXPECT_EQ(Values(again), Values(whole.SliceAxis(0, 333, 1001)));

  // Elements of a view get their numbers in logical order.
  Random random(1);
  const Tensor view = RandomView(random, {7, 11, 13});
  device->SetRandSeed(9);
  Uniform(0, 1, view);
  EXPECT_EQ(Values(view), Values(whole));
  const Tensor padded = PaddedLayout::Of(RandomTensor(random, {1001}));
  device->SetRandSeed(9);
  Uniform(0, 1, padded);
  EXPECT_EQ(Values(padded), Values(whole));
  Uniform(0, 1, Tensor(Shape{0, 3}));
}

TEST(Random, Errors) {
  const Tensor t(Shape{2}), ints(Shape{2}, nullptr, kInt32);
  EXPECT_ERROR(TypeError, "[Uniform] out", Uniform(0, 1, ints));
  EXPECT_ERROR(std::invalid_argument, "low", Uniform(1, 0, t));
  EXPECT_ERROR(std::invalid_argument, "[Gaussian]", Gaussian(0, -1, t));
  EXPECT_ERROR(std::invalid_argument, "1.5", Bernoulli(1.5, t));
  EXPECT_ERROR(std::invalid_argument, "out", Bernoulli(0.5, Tensor()));
}

TEST(Dropout, ScalesWhatItKeeps) {
  Random random(2);
  for (const DType dtype : kFloats) {
    for (const double ratio : {0.0, 0.2, 0.75}) {
      const Tensor x = RandomView(random, {100, 333}, dtype, 1, 2);
      const std::vector<Tensor> out = DropoutForward(x, ratio);
      EXPECT_EQ(out[0].data_type(), dtype);
      EXPECT_EQ(out[1].data_type(), kUInt8);
      const Vector vx = Values(x), mask = Values(out[1]);
      Vector want(vx.size()), tolerance(vx.size());
      double kept = 0;
      for (size_t i = 0; i < vx.size(); ++i) {
        ASSERT_TRUE(mask[i] == 0 || mask[i] == 1);
        kept += mask[i];
        want[i] = vx[i] * mask[i] / (1 - ratio);
        tolerance[i] = 2 * Epsilon(dtype == kFloat64 ? kFloat64 : kFloat32) * want[i];
      }
      ExpectNear(out[0], want, tolerance, "dropout");
      EXPECT_NEAR(kept / 33300, 1 - ratio, 5 * std::sqrt(ratio * (1 - ratio) / 33300));
      // Backward is the same linear map.
      ExpectNear(DropoutBackward(x, out[1], ratio), want, tolerance, "gradient");
    }
  }
}

TEST(Dropout, TakesTheNextPositions) {
  const DevicePtr device = DefaultDevice();
  const Tensor x = Full({50001}, 1);
  const Vector mask = SameOnThreads({3}, [&] {
    device->SetRandSeed(3);
    return Values(DropoutForward(x, 0.5)[1]);
  });
  EXPECT_EQ(device->random_state(), (std::vector<uint64_t>{3, 50001}));
  EXPECT_NE(Values(DropoutForward(x, 0.5)[1]), mask);
  // The mask does not depend on the layout of x.
  device->SetRandSeed(3);
  EXPECT_EQ(Values(DropoutForward(PaddedLayout::Of(x), 0.5)[1]), mask);
  // A dropped infinity becomes zero, not NaN.
  const Tensor inf = Full({64}, kInf);
  for (double v : Values(DropoutForward(inf, 0.5)[0])) EXPECT_FALSE(std::isnan(v));
}

TEST(Dropout, Errors) {
  const Tensor x(Shape{2, 3});
  const Tensor mask(Shape{2, 3}, nullptr, kUInt8);
  EXPECT_ERROR(std::invalid_argument, "[Dropout] ratio 1", DropoutForward(x, 1));
  EXPECT_ERROR(std::invalid_argument, "ratio", DropoutForward(x, -0.1));
  EXPECT_ERROR(std::invalid_argument, "x is an empty", DropoutForward(Tensor(), 0.5));
  EXPECT_ERROR(TypeError, "x must be of a float type", DropoutForward(mask, 0.5));
  EXPECT_ERROR(TypeError, "mask", DropoutBackward(x, x, 0.5));
  EXPECT_ERROR(std::invalid_argument, "mask",
               DropoutBackward(x, Tensor(Shape{3}, nullptr, kUInt8), 0.5));
}

}  // namespace
}  // namespace singa::test
