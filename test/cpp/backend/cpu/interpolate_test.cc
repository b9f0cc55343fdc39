// Interpolation on the CPU's own kernel, beside the reference, in every layout.

#include "singa/operation/interpolate.h"

#include "backend/cpu/lane_layouts.h"

namespace singa::test {
namespace {

InterpolationHandle AnyHandle(Random& random) {
  const auto mode = static_cast<InterpolationMode>(random.Int(0, 3));
  return InterpolationHandle(mode, static_cast<CoordinateMode>(random.Int(0, 4)),
                             static_cast<NearestMode>(random.Int(0, 3)),
                             random.Coin() ? -0.75 : -0.5, random.Coin(), random.Int(0, 3) == 0);
}

TEST(CpuInterpolate, AllLayoutsAreTheReference) {
  Random random(31);
  for (int i = 0; i < 300 && !testing::Test::HasFailure(); ++i) {
    const DType dtype = random.Int(0, 2) == 0 ? kBFloat16 : kFloat32;
    const Shape shape{random.Int(1, 2), random.Int(1, 20), random.Int(1, 9), random.Int(1, 40)};
    const InterpolationHandle handle = AnyHandle(random);
    std::vector<int64_t> axes = {2, 3}, sizes;
    if (random.Int(0, 4) == 0) axes = {random.Int(2, 3)};
    Shape y_shape = shape;
    for (const int64_t axis : axes) {
      // Doubling and halving have loops of their own.
      const int way = static_cast<int>(random.Int(0, 3));
      const int64_t length = shape[static_cast<int>(axis)];
      sizes.push_back(way == 0 ? 2 * length : way == 1 ? (length + 1) / 2 : random.Int(1, 50));
      y_shape[static_cast<int>(axis)] = sizes.back();
    }
    SCOPED_TRACE(shape.ToString() + y_shape.ToString() + DTypeName(dtype) + " mode " +
                 std::to_string(static_cast<int>(handle.mode)));
    const Tensor x = RandomTensor(random, shape, dtype), dy = RandomTensor(random, y_shape, dtype);
    PreferenceScope reference(Preference::kReference);
    const Tensor y = Interpolate(handle, x, axes, sizes);
    const Tensor dx = InterpolateBackward(handle, dy, shape, axes);
    PreferenceScope fastest(Preference::kFastest);
    const double close = 64 * 0x1p-23;
    ExpectSame(Interpolate(handle, x, axes, sizes), y, close, "row-major y");
    ExpectSame(InterpolateBackward(handle, dy, shape, axes), dx, close, "row-major dx");
    if (y_shape == shape) continue;  // a copy
    const Tag tag = kTags[random.Int(0, 2)];
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    const uint64_t reorders = Reorders();
    const Tensor yb = Interpolate(handle, xb, axes, sizes);
    const Tensor dxb = InterpolateBackward(handle, dyb, shape, axes);
    EXPECT_EQ(Reorders(), reorders);
    if (xb.layout()) ExpectIn(yb, tag, "y");
    if (dyb.layout()) ExpectIn(dxb, tag, "dx");
    ExpectSame(yb, y, close, "y");
    ExpectSame(dxb, dx, close, "dx");
  }
}

TEST(CpuInterpolate, SeveralThreads) {
  Random random(32);
  const Tensor x = RandomTensor(random, {2, 16, 40, 50});
  for (const InterpolationMode mode : {InterpolationMode::kNearest, InterpolationMode::kLinear}) {
    const InterpolationHandle handle(mode);
    const Tensor y = Interpolate(handle, x, {2, 3}, {80, 100});
    PreferenceScope reference(Preference::kReference);
    ExpectSame(y, Interpolate(handle, x, {2, 3}, {80, 100}), 64 * 0x1p-23, "y");
  }
}

}  // namespace
}  // namespace singa::test
