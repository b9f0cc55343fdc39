#include "model/formula/vector_trigonometry.h"

#include <algorithm>

#include "model/formula/ulps.h"

namespace singa::formula {
namespace {

// Expects a function to be as exact as `ulps`, up to `most`, and NaN, infinities and zeros where
// the C library's is that.
template <class Got, class Exact>
void ExpectFunction(const char* name, const Got& got, const Exact& exact, double ulps,
                    float most = kInf) {
  ForFloats([&](float x) {
    if (std::fabs(x) > most) return;
    const double want = exact(double{x});
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got(x))) << name << " of " << x;
    } else {
      ASSERT_LE(Ulps(got(x), want), ulps) << name << " of " << x;
    }
  });
  for (const float x :
       {0.0f, kSmallest, 0.5f, 0x1p-12f, 0x1.fffffep-1f, 1.0f, 0x1.000002p0f, 2.0f, kInf, kNan})
    for (const float signed_x : {x, -x}) {
      if (std::fabs(x) > most) continue;
      const auto want = static_cast<float>(exact(double{signed_x}));
      if (!std::isfinite(want) || want == 0)
        EXPECT_TRUE(IsSame(got(signed_x), want)) << name << " of " << signed_x;
      else
        EXPECT_LE(Ulps(got(signed_x), exact(double{signed_x})), ulps) << name << " of " << signed_x;
    }
}
#define SINGA_EXPECT(Name, name, ...) \
  ExpectFunction(                     \
      #Name, [](float x) { return Name(x); }, [](double x) { return std::name(x); }, __VA_ARGS__)

TEST(VectorTrigonometry, AnglesAreWithinTwoUlp) {
  SINGA_EXPECT(Sin, sin, 1.6, kFarAngle);
  SINGA_EXPECT(Cos, cos, 1.6, kFarAngle);
  SINGA_EXPECT(Tan, tan, 1, kFarAngle);
  // Beside the zeros, where a product with pi/2 cancels.
  for (int64_t n = 0; n < 333000; n += 7) {
    const auto at = static_cast<float>(static_cast<double>(n) * std::numbers::pi / 2);
    for (const float x : {std::nextafter(at, 0.0f), at, std::nextafter(at, kInf)}) {
      ASSERT_LE(Ulps(Sin(x), std::sin(double{x})), 1.6) << x;
      ASSERT_LE(Ulps(Cos(x), std::cos(double{x})), 1.6) << x;
      ASSERT_LE(Ulps(Tan(x), std::tan(double{x})), 1) << x;
    }
  }
}

TEST(VectorTrigonometry, InversesAreWithinOneUlp) {
  SINGA_EXPECT(Asin, asin, 0.6);
  SINGA_EXPECT(Acos, acos, 0.6);
  SINGA_EXPECT(Atan, atan, 0.6);
  SINGA_EXPECT(Asinh, asinh, 0.6);
  SINGA_EXPECT(Acosh, acosh, 0.6);
  SINGA_EXPECT(Atanh, atanh, 0.6);
}

TEST(VectorTrigonometry, HyperbolicFunctionsAreWithinTwoUlp) {
  SINGA_EXPECT(Sinh, sinh, 1.6);
  SINGA_EXPECT(Cosh, cosh, 1.6);
}

}  // namespace
}  // namespace singa::formula
