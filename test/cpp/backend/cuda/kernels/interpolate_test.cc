// Interpolation on the emulator, in all modes, both directions, row-major and channels-last.

#include "model/operation/interpolate/spec.h"

#include "backend/cuda/kernels/kernels.h"

namespace singa::test {
namespace {

InterpolationFields AnyFields(Random& random, DType dtype) {
  InterpolationFields fields;
  fields.how.mode = static_cast<InterpolationMode>(random.Int(0, 3));
  fields.how.coordinates = static_cast<CoordinateMode>(random.Int(0, 4));
  fields.how.nearest = static_cast<NearestMode>(random.Int(0, 3));
  fields.how.cubic_coeff_a = random.Coin() ? -0.75 : -0.5;
  fields.how.exclude_outside = random.Coin();
  fields.how.antialias = random.Int(0, 3) == 0;
  fields.dtype = dtype;
  fields.x_shape = random.Dims(4, 1, 7);
  fields.x_shape[1] = random.Coin() ? 8 : 3;
  fields.y_shape = fields.x_shape;
  fields.first_axis = static_cast<int>(random.Int(0, 5) == 0 ? 1 : random.Int(2, 3));
  fields.axes = static_cast<int>(random.Int(1, 4 - fields.first_axis));
  for (int i = 0; i < fields.axes; ++i) {
    int64_t& size = fields.y_shape[fields.first_axis + i];
    const int64_t length = size;
    size = random.Int(1, 12);
    if (random.Int(0, 2) == 0)
      fields.scales[i] = (static_cast<double>(size) + 0.3) / static_cast<double>(length);
  }
  return fields;
}

TEST(CudaInterpolate, EveryModeBothWays) {
  Random random(1);
  for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i) {
    const DType dtype = kFloats[i % 4];
    InterpolationFields fields = AnyFields(random, dtype);
    const double step = 64 * Step(kFloat64);
    for (const LayoutPtr& layout : ImageLayouts(fields.x_shape, dtype)) {
      fields.layout = layout;
      CompareWithReference(InterpolateSpec{fields}, {RandomTensor(random, fields.x_shape, dtype)},
                           {Result(fields.y_shape, dtype)}, {}, {step, step});
    }
    for (const LayoutPtr& layout : ImageLayouts(fields.y_shape, dtype)) {
      fields.layout = layout;
      CompareWithReference(InterpolateBackwardSpec{fields},
                           {RandomTensor(random, fields.y_shape, dtype)},
                           {Result(fields.x_shape, dtype)}, {}, {step, step});
    }
  }
}

}  // namespace
}  // namespace singa::test
