#include "model/formula/vector_math.h"

#include <vector>

#include "model/formula/ulps.h"

namespace singa::formula {
namespace {

TEST(VectorMath, ExpIsWithinOneUlp) {
  ForFloats([](float x) { ASSERT_LE(Ulps(Exp(x), std::exp(double{x})), 1) << x; });
  EXPECT_EQ(Exp(0.0f), 1);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(-kInf), 0);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(VectorMath, LogIsWithinThreeUlp) {
  ForFloats([](float x) {
    if (x > 0) {
      ASSERT_LE(Ulps(Log(x), std::log(double{x})), 3) << x;
    }
    if (x < 0) {
      ASSERT_TRUE(std::isnan(Log(x))) << x;
    }
  });
  EXPECT_EQ(Log(1.0f), 0);
  EXPECT_EQ(Log(0.0f), -kInf);
  EXPECT_EQ(Log(-0.0f), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log(-kInf)));
  EXPECT_TRUE(std::isnan(Log(kNan)));
}

TEST(VectorMath, Exp2IsWithinTwoUlp) {
  ForFloats([](float x) { ASSERT_LE(Ulps(Exp2(x), std::exp2(double{x})), 1.25) << x; });
  for (int n = -149; n < 128; ++n) EXPECT_EQ(Exp2(static_cast<float>(n)), std::ldexp(1.0f, n)) << n;
  EXPECT_EQ(Exp2(kInf), kInf);
  EXPECT_EQ(Exp2(-kInf), 0);
  EXPECT_TRUE(std::isnan(Exp2(kNan)));
}

TEST(VectorMath, Expm1IsWithinTwoUlp) {
  ForFloats([](float x) { ASSERT_LE(Ulps(Expm1(x), std::expm1(double{x})), 2) << x; });
  EXPECT_EQ(Expm1(kInf), kInf);
  EXPECT_EQ(Expm1(-kInf), -1);
  EXPECT_TRUE(std::isnan(Expm1(kNan)));
  for (const float x : {0.0f, -0.0f, kSmallest, -kSmallest}) EXPECT_TRUE(IsSame(Expm1(x), x)) << x;
}

template <class Got, class Exact>
void ExpectLogarithm(const Got& got, const Exact& exact, double ulps) {
  ForFloats([&](float x) {
    if (x > 0) {
      ASSERT_LE(Ulps(got(x), exact(double{x})), ulps) << x;
    }
    if (x < 0) {
      ASSERT_TRUE(std::isnan(got(x))) << x;
    }
  });
  EXPECT_EQ(got(1.0f), 0);
  EXPECT_EQ(got(0.0f), -kInf);
  EXPECT_EQ(got(-0.0f), -kInf);
  EXPECT_EQ(got(kInf), kInf);
  EXPECT_TRUE(std::isnan(got(-kInf)));
  EXPECT_TRUE(std::isnan(got(kNan)));
}

TEST(VectorMath, LogarithmsToABaseAreWithinOneUlp) {
  ExpectLogarithm([](float x) { return Log2(x); }, [](double x) { return std::log2(x); }, 1);
  ExpectLogarithm([](float x) { return Log10(x); }, [](double x) { return std::log10(x); }, 1);
  for (int n = -149; n < 128; ++n) EXPECT_EQ(Log2(std::ldexp(1.0f, n)), static_cast<float>(n)) << n;
  float power = 1;
  for (int n = 0; n <= 10; ++n, power *= 10) EXPECT_EQ(Log10(power), static_cast<float>(n)) << n;
}

TEST(VectorMath, Log1pIsWithinTwoUlp) {
  ForFloats([](float x) {
    if (x > -1) {
      ASSERT_LE(Ulps(Log1p(x), std::log1p(double{x})), 1.5) << x;
    }
    if (x < -1) {
      ASSERT_TRUE(std::isnan(Log1p(x))) << x;
    }
  });
  EXPECT_EQ(Log1p(-1.0f), -kInf);
  EXPECT_EQ(Log1p(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log1p(kNan)));
  for (const float x : {0.0f, -0.0f, kSmallest, -kSmallest}) EXPECT_TRUE(IsSame(Log1p(x), x)) << x;
}

// All pairs of special numbers have the C library's bits, but for the bits of NaN, and others are
// as near as the bound. Drawn pairs have results of all sizes.
TEST(VectorMath, PowIsWithinTwoUlp) {
  std::vector<float> numbers = {0,       kSmallest,      0x1p-126f,
                                0.25f,   0.5f,           0x1.fffffep-1f,
                                1,       0x1.000002p0f,  1.5f,
                                2,       2.5f,           3,
                                1001,    0x1p22f,        0x1.000002p22f,
                                0x1p23f, 0x1.000002p23f, 0x1p24f,
                                0x1p25f, 0x1p60f,        0x1.fffffep127f,
                                kInf};
  for (size_t i = numbers.size(); i-- > 0;) numbers.push_back(-numbers[i]);
  numbers.push_back(kNan);
  for (const float a : numbers)
    for (const float b : numbers) {
      const float want = std::pow(a, b), got = Pow(a, b);
      const bool is_special = !std::isfinite(want) || want == 0 || std::fabs(want) == 1;
      if (is_special)
        EXPECT_TRUE(IsSame(got, want)) << a << "^" << b << " = " << got;
      else
        EXPECT_LE(Ulps(got, std::pow(double{a}, double{b})), 1.25) << a << "^" << b;
    }
  uint64_t state = 1;
  const auto random = [&](double low, double high) {
    state = state * 6364136223846793005 + 1442695040888963407;
    return low + (high - low) * static_cast<double>(state >> 11) * 0x1p-53;
  };
  for (int i = 0; i < 1000000; ++i) {
    const auto a = static_cast<float>(std::exp2(random(-140, 128)));
    const auto b = static_cast<float>(random(-152, 130) / std::log2(a));
    ASSERT_LE(Ulps(Pow(a, b), std::pow(double{a}, double{b})), 1.25) << a << "^" << b;
    const auto near = static_cast<float>(1 + random(-1, 1) * std::exp2(random(-23, -1)));
    const auto large = static_cast<float>(random(-100, 100) / std::log2(near));
    ASSERT_LE(Ulps(Pow(near, large), std::pow(double{near}, double{large})), 1.25)
        << near << "^" << large;
  }
  for (float a = -9; a <= 9; ++a)  // results that are floats are exact
    for (float b = 0; b <= 7; ++b) EXPECT_EQ(Pow(a, b), std::pow(a, b)) << a << "^" << b;
}

TEST(VectorMath, SoftPlusIsWithinThreeUlp) {
  ForFloats([](float x) {
    const double exact = std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(double{x})));
    ASSERT_LE(Ulps(SoftPlus(x), exact), 3) << x;
  });
  EXPECT_EQ(SoftPlus(kInf), kInf);
  EXPECT_EQ(SoftPlus(-kInf), 0);
  EXPECT_TRUE(std::isnan(SoftPlus(kNan)));
}

TEST(VectorMath, TanhIsWithinThreeUlp) {
  ForFloats([](float x) { ASSERT_LE(Ulps(Tanh(x), std::tanh(double{x})), 3) << x; });
  EXPECT_EQ(Tanh(kInf), 1);
  EXPECT_EQ(Tanh(-kInf), -1);
  EXPECT_TRUE(std::signbit(Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(Tanh(kNan)));
}

TEST(VectorMath, SigmoidIsWithinThreeUlp) {
  ForFloats([](float x) {
    const double exact = 1 / (1 + std::exp(-double{x}));
    if (exact < 0x1p-126) {
      ASSERT_LT(Sigmoid(x), 0x1p-126f) << x;
    } else {
      ASSERT_LE(Ulps(Sigmoid(x), exact), 3) << x;
    }
  });
  EXPECT_EQ(Sigmoid(0.0f), 0.5f);
  EXPECT_EQ(Sigmoid(kInf), 1);
  EXPECT_EQ(Sigmoid(-kInf), 0);
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

TEST(VectorMath, ErfcIsWithinSevenUlp) {
  ForFloats([](float x) { ASSERT_LE(Ulps(Erfc(x), std::erfc(double{x})), 7) << x; });
  EXPECT_EQ(Erfc(-kInf), 2);
  EXPECT_EQ(Erfc(kInf), 0);
  EXPECT_TRUE(std::isnan(Erfc(kNan)));
}

TEST(VectorMath, ErfIsWithinThreeUlp) {
  ForFloats([](float x) { ASSERT_LE(Ulps(Erf(x), std::erf(double{x})), 3) << x; });
  EXPECT_EQ(Erf(kInf), 1);
  EXPECT_EQ(Erf(-kInf), -1);
  EXPECT_TRUE(std::signbit(Erf(-0.0f)));
  EXPECT_TRUE(std::isnan(Erf(kNan)));
}

TEST(VectorMath, TheDensityIsWithinThreeUlp) {
  ForFloats([](float x) {
    const double exact = std::exp(-double{x} * double{x});
    ASSERT_LE(Ulps(ErfcAndDensity(x).density, exact), 2) << x;
  });
}

}  // namespace
}  // namespace singa::formula
