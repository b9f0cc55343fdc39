#include "singa/operation/interpolate.h"

#include "support.h"

namespace singa::test {
namespace {

TEST(Interpolate, InfinitiesWithoutAShareDoNotCount) {
  const InterpolationHandle linear(InterpolationMode::kLinear, CoordinateMode::kAlignCorners);
  const Tensor x = FromValues({3}, {1, HUGE_VAL, 3});
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    EXPECT_EQ(Values(Interpolate(linear, x, {0}, {5})),
              (Vector{1, HUGE_VAL, HUGE_VAL, HUGE_VAL, 3}));
  }
}

TEST(Interpolate, EmptyAndUnchanged) {
  const InterpolationHandle linear(InterpolationMode::kLinear);
  EXPECT_EQ(Interpolate(linear, Tensor({0, 3}), {1}, {5}).shape(), Shape({0, 5}));
  EXPECT_EQ(Interpolate(linear, Tensor({2, 3}), {1}, {0}).shape(), Shape({2, 0}));
  const Tensor dx = InterpolateBackward(linear, Tensor({2, 0}), {2, 3}, {1});
  EXPECT_EQ(Values(dx), Vector(6, 0));
  const Tensor x = FromValues({2}, {1, 2});
  EXPECT_EQ(Values(Interpolate(linear, x, {0}, {2})), (Vector{1, 2}));
  EXPECT_NE(Interpolate(linear, x, {}, {}).block(), x.block());
}

}  // namespace
}  // namespace singa::test
