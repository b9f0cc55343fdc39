#include "model/formula/special.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace singa::formula {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Point {
  double x, y;
};

/// Values of mpmath, computed with 40 digits.
template <class F>
void ExpectPoints(const F& f, const std::vector<Point>& points, double tolerance) {
  for (const auto& [x, y] : points) EXPECT_NEAR(f(x), y, tolerance * std::fabs(y)) << x;
}

TEST(Special, LogGamma) {
  ExpectPoints(LogGamma<double>,
               {{1e-8, 18.420680738180209},
                {0.3, 1.0957979948180756},
                {1, 0},
                {1.5, -0.12078223763524522},
                {4, 1.791759469228055},
                {11.5, 16.292000476567241},
                {1e6, 12815504.569147612},
                {-0.5, 1.2655121234846454},
                {-3.7, -1.3797399049658245},
                {-99.25, -358.79325616163486}},
               1e-15);
  for (double x : {0., -1., -7., kInf}) EXPECT_EQ(LogGamma(x), kInf) << x;
}

TEST(Special, PolyGamma) {
  const auto of = [](double n) { return [n](double x) { return PolyGamma(x, n); }; };
  ExpectPoints(of(0),
               {{1e-8, -100000000.57721565},
                {0.3, -3.5025242222001331},
                {1, -0.57721566490153286},
                {1.5, 0.036489973978576521},
                {4, 1.2561176684318005},
                {11.5, 2.3982391295357816},
                {1e6, 13.815510057964191},
                {-0.5, 0.036489973978576521},
                {-3.7, -0.84507685887041935},
                {-99.25, 7.7442638968645058}},
               1e-13);
  ExpectPoints(of(1),
               {{1e-8, 1.0000000000000001e+16},
                {0.3, 12.245364546107731},
                {1, 1.6449340668482264},
                {1.5, 0.93480220054467931},
                {4, 0.28382295573711533},
                {11.5, 0.090846661274546234},
                {1e6, 1.0000005000001667e-6},
                {-0.5, 8.9348022005446793},
                {-3.7, 14.84242186412428},
                {-99.25, 19.729183823480594}},
               1e-14);
  ExpectPoints(of(2),
               {{1e-8, -1.9999999999999999e+24},
                {0.3, -75.272536588726039},
                {1, -2.4041138063191886},
                {1.5, -0.82879664423432},
                {4, -0.080039732245114497},
                {11.5, -8.2474690506522171e-3},
                {1e6, -1.0000010000005e-12},
                {-0.5, -0.82879664423432},
                {-3.7, -68.893454688673547},
                {-99.25, 124.02500622184302}},
               1e-13);
  ExpectPoints(of(9),
               {{1e-8, 3.6287999999999992e+85},
                {0.3, 61454073052.034767},
                {1, 363240.91142238263},
                {1.5, 6332.3850974272237},
                {4, 0.3910177187036247},
                {11.5, 1.6585894499664688e-5},
                {1e6, 4.03201814403024e-50},
                {-0.5, 743184572.38509743},
                {-3.7, 61466921305.684192},
                {-99.25, 380513743242.33977}},
               1e-13);
  ExpectPoints(of(30),
               {{1e-8, -2.6525285981219089e+280},
                {0.3, -4.2943869917015745e+48},
                {1, -2.6525285993570948e+32},
                {1.5, -9.2221270661620558e+26},
                {4, -5.7574709672867347e+13},
                {11.5, -0.3773484763042528},
                {1e6, -8.8418946208548446e-150},
                {-0.5, -9.2221270661620558e+26},
                {-3.7, -4.2943869916848363e+48},
                {-99.25, 1.2232629049437595e+51}},
               1e-13);
}

TEST(Special, PolyGammaAtPolesAndInfinity) {
  EXPECT_EQ(PolyGamma(0.0, 0.0), -kInf);
  EXPECT_EQ(PolyGamma(-0.0, 0.0), kInf);
  EXPECT_TRUE(std::isnan(PolyGamma(-3.0, 0.0)));
  EXPECT_EQ(PolyGamma(kInf, 0.0), kInf);
  EXPECT_TRUE(std::isnan(PolyGamma(-kInf, 0.0)));
  for (double pole : {0., -1., -1e300}) {
    EXPECT_EQ(PolyGamma(pole, 1.0), kInf) << pole;
    EXPECT_EQ(PolyGamma(pole, 2.0), -kInf) << pole;
  }
  EXPECT_EQ(PolyGamma(kInf, 1.0), 0);
  for (double n : {0., 1., 2.}) EXPECT_TRUE(std::isnan(PolyGamma(std::nan(""), n))) << n;
  EXPECT_TRUE(std::isfinite(PolyGamma(4.0, 169.0)));
}

TEST(Special, ErfInverse) {
  ExpectPoints(ErfInverse<double>,
               {{1e-30, 8.8622692545275809e-31},
                {-1e-5, -8.8622692547595945e-6},
                {0.3, 0.27246271472675435},
                {-0.7, -0.73286907795921678},
                {0.999, 2.3267537655135245},
                {1 - 0x1p-40, 5.05125408524939},
                {1 - 0x1p-53, 5.8635847487551679}},
               4e-15);
  EXPECT_EQ(ErfInverse(0.0), 0);
  EXPECT_TRUE(std::signbit(ErfInverse(-0.0)));
  EXPECT_EQ(ErfInverse(1.0), kInf);
  EXPECT_EQ(ErfInverse(-1.0), -kInf);
  for (double x : {1.5, -2., kInf, std::nan("")}) EXPECT_TRUE(std::isnan(ErfInverse(x))) << x;
}

}  // namespace
}  // namespace singa::formula
