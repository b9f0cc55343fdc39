// Layer, group, instance and RMS norm on the emulator.

#include "model/operation/norm/spec.h"

#include "backend/cuda/kernels/kernels.h"

namespace singa::test {
namespace {

constexpr DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};

void Check(Random& random, const NormGeometry& geometry) {
  const DType type = geometry.dtype == kFloat64 ? kFloat64 : kFloat32;
  const Shape channels{geometry.channels()}, statistics{geometry.statistics()};
  const std::string what = geometry.shape.ToString() + (geometry.per_position ? " each" : "");
  const Tensor x = RandomTensor(random, geometry.shape, geometry.dtype, -3, 5);
  const Tensor dy = RandomTensor(random, geometry.shape, geometry.dtype);
  const Tensor scale = geometry.has_scale ? RandomTensor(random, channels, type) : Tensor();
  const Tensor bias = RandomTensor(random, channels, type);
  const auto maybe = [](bool there, const Shape& shape, DType dtype) {
    return there ? Result(shape, dtype) : Tensor();
  };
  const double step = type == kFloat64 ? 0x1p-52 : 0x1p-23;
  const auto forward =
      CompareWithReference(NormForwardSpec{geometry, true, 1e-5}, {x, scale, bias},
                           {Result(geometry.shape, geometry.dtype),
                            maybe(geometry.centered, statistics, type), Result(statistics, type)},
                           {}, Tolerance{64 * step, 64 * step}, what);
  CompareWithReference(
      NormBackwardSpec{geometry, true, true, true}, {dy, x, scale, forward[1], forward[2]},
      {Result(geometry.shape, geometry.dtype), Result(channels, type), Result(channels, type)}, {},
      Tolerance{512 * step, 512 * step}, what);
}

TEST(CudaNorm, AnyGeometry) {
  Random random(5);
  for (const DType dtype : kFloats) {
    Check(random, {.shape = {3, 40}, .centered = false, .dtype = dtype});
    Check(random, {.shape = {600, 5}, .has_scale = false, .dtype = dtype});
    Check(random, {.shape = {2, 700}, .dtype = dtype});
    Check(random, {.shape = {2, 6, 5, 7}, .groups = 3, .dtype = dtype});
    Check(random, {.shape = {3, 8}, .groups = 4, .dtype = dtype});
    Check(random, {.shape = {2, 6, 300}, .groups = 6, .dtype = dtype});
    Check(random, {.shape = {2, 33, 5, 7}, .per_position = true, .dtype = dtype});
    Check(random, {.shape = {2, 33, 4}, .per_position = true, .centered = false, .dtype = dtype});
  }
}

TEST(CudaNorm, Empty) {
  Random random(6);
  Check(random, {.shape = {0, 4}});
  Check(random, {.shape = {2, 4, 0, 3}, .groups = 2});
}

}  // namespace
}  // namespace singa::test
