#include "model/formula/vector_math.h"

#include <gtest/gtest.h>

#include <limits>

namespace singa::formula {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

// The error in units of the last place of the exact value.
double Ulps(float got, double exact) {
  if (static_cast<float>(exact) == got) return 0;
  const double magnitude = std::max(std::fabs(exact), 0x1p-126);
  return std::fabs(got - exact) / std::ldexp(1.0, std::ilogb(magnitude) - 23);
}

// Every 4099th float.
template <class F>
void ForFloats(const F& f) {
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4099) {
    const auto x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) f(x);
  }
}

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
    ASSERT_LE(Ulps(ErfcAndDensity(x).density, exact), 3) << x;
  });
}

}  // namespace
}  // namespace singa::formula
