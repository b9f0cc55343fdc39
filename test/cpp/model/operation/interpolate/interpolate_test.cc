// Interpolation against ONNX's definition of Resize, written for one element at a time, and
// gradients against its transpose.

#include "singa/operation/interpolate.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "model/operation/copied.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Doubles;
using test::Epsilon;
using test::ExpectError;
using test::Flat;
using test::ForEachIndex;
using test::FromValues;
using test::Index;
using test::kImplementations;
using test::PreferenceScope;
using test::Random;
using test::Values;
using test::Whole;

/// {position in x: weight} of position i along an axis; `scale` 0 is out / in.
std::map<int64_t, double> WeightsOf(const InterpolationHandle& handle, int64_t in, int64_t out,
                                    double scale, int64_t i) {
  const auto n = static_cast<double>(in), m = static_cast<double>(out);
  if (handle.mode == InterpolationMode::kArea) {
    std::map<int64_t, double> weights;  // of the positions that [i, i + 1) · n / m touches
    for (int64_t p = 0; p < in; ++p)
      if (p * out < (i + 1) * in && (p + 1) * out > i * in) weights[p] = 1;
    for (auto& [position, weight] : weights) weight = 1 / static_cast<double>(weights.size());
    return weights;
  }
  const double s = scale > 0 ? scale : m / n;
  double x = (static_cast<double>(i) + 0.5) / s - 0.5;
  if (handle.coordinates == CoordinateMode::kAsymmetric) x = static_cast<double>(i) / s;
  if (handle.coordinates == CoordinateMode::kAlignCorners)
    x = out == 1 ? 0 : static_cast<double>(i) * (n - 1) / (m - 1);
  if (handle.coordinates == CoordinateMode::kPytorchHalfPixel && out == 1) x = 0;
  if (handle.coordinates == CoordinateMode::kHalfPixelSymmetric) x += n / 2 * (1 - m / (s * n));
  const auto inside = [in](double p) {
    return std::clamp<int64_t>(static_cast<int64_t>(p), 0, in - 1);
  };
  if (handle.mode == InterpolationMode::kNearest) {
    x = std::round(x * 1e9) / 1e9;  // whole numbers and halves without rounding errors
    const double down = std::floor(x), part = x - down;
    switch (handle.nearest) {
      case NearestMode::kRoundPreferFloor:
        return {{inside(part <= 0.5 ? down : down + 1), 1}};
      case NearestMode::kRoundPreferCeil:
        return {{inside(part < 0.5 ? down : down + 1), 1}};
      case NearestMode::kFloor:
        return {{inside(down), 1}};
      default:
        return {{inside(std::ceil(x)), 1}};
    }
  }
  const double stretch = handle.antialias ? std::max(1.0, 1 / s) : 1;
  const double a = handle.cubic_coeff_a;
  const auto kernel = [&](double t) {
    t = std::abs(t);
    if (handle.mode == InterpolationMode::kLinear) return std::max(0.0, 1 - t);
    if (t < 1) return (a + 2) * t * t * t - (a + 3) * t * t + 1;
    return t < 2 ? a * t * t * t - 5 * a * t * t + 8 * a * t - 4 * a : 0;
  };
  const bool excluding = handle.exclude_outside || handle.antialias;
  std::map<int64_t, double> weights;
  double sum = 0;
  for (double p = std::floor(x - 2 * stretch) - 1; p <= x + 2 * stretch + 1; ++p) {
    if (excluding && (p < 0 || p >= n)) continue;
    weights[inside(p)] += kernel((p - x) / stretch);
    sum += kernel((p - x) / stretch);
  }
  if (excluding) {
    if (sum == 0) return {{inside(x), 1}};
    for (auto& [position, weight] : weights) weight /= sum;
  }
  return weights;
}

InterpolationHandle AnyHandle(Random& random) {
  const auto mode = static_cast<InterpolationMode>(random.Int(0, 3));
  return InterpolationHandle(mode, static_cast<CoordinateMode>(random.Int(0, 4)),
                             static_cast<NearestMode>(random.Int(0, 3)),
                             random.Coin() ? -0.75 : -0.5, random.Int(0, 3) == 0,
                             random.Int(0, 3) == 0);
}

TEST(Interpolate, RandomGeometriesForwardAndBackward) {
  Random random(1);
  for (int round = 0; round < 250 && !testing::Test::HasFailure(); ++round) {
    const InterpolationHandle handle = AnyHandle(random);
    const int rank = static_cast<int>(random.Int(1, 5));
    const Shape shape = random.Dims(rank, 1, 5);
    std::vector<int64_t> axes, sizes;
    std::vector<double> scales;
    const bool scaled = random.Int(0, 2) == 0 && handle.mode != InterpolationMode::kArea;
    Shape y_shape = shape;
    std::vector<std::vector<std::map<int64_t, double>>> weights;
    for (int axis = 0; axis < rank; ++axis) {
      weights.emplace_back();
      double scale = 0;
      if (random.Coin()) {
        axes.insert(axes.begin(), random.Coin() ? axis : axis - rank);
        const int64_t size = random.Int(1, 9);
        scale = scaled ? (static_cast<double>(size) + 0.25) / static_cast<double>(shape[axis]) : 0;
        sizes.insert(sizes.begin(), size);
        scales.insert(scales.begin(), scale);
        y_shape[axis] = size;
      }
      const bool kept = y_shape[axis] == shape[axis] && scale == 0;
      for (int64_t i = 0; i < y_shape[axis]; ++i)
        weights.back().push_back(kept ? std::map<int64_t, double>{{i, 1}}
                                      : WeightsOf(handle, shape[axis], y_shape[axis], scale, i));
    }
    if (!scaled) scales.clear();
    const DType dtype = test::kTypes[round % 4];
    const Tensor x = AnyTensor(random, shape, dtype), dy = AnyTensor(random, y_shape, dtype);
    const Doubles xs = Values(x), dys = Values(dy);
    Doubles y(static_cast<size_t>(y_shape.Count()), 0), dx(xs.size(), 0), y_size = y, dx_size = dx;
    ForEachIndex(y_shape, [&](const Index& to) {
      const size_t i = Flat(y_shape, to);
      const std::function<void(int, Index, double)> walk = [&](int axis, Index from, double w) {
        if (axis == rank) {
          const size_t at = Flat(shape, from);
          y[i] += w * xs[at];
          y_size[i] += std::abs(w * xs[at]);
          dx[at] += w * dys[i];
          dx_size[at] += std::abs(w * dys[i]);
          return;
        }
        for (const auto& [position, weight] : weights[static_cast<size_t>(axis)][to[axis]]) {
          from.push_back(position);
          walk(axis + 1, from, w * weight);
          from.pop_back();
        }
      };
      walk(0, {}, 1);
    });
    for (Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      SCOPED_TRACE(shape.ToString() + " to " + y_shape.ToString() + ", round " +
                   std::to_string(round));
      const Tensor got = Interpolate(handle, x, axes, sizes, scales);
      const Tensor gradient = InterpolateBackward(handle, dy, shape, axes, scales);
      ASSERT_EQ(got.shape(), y_shape);
      ASSERT_EQ(gradient.shape(), shape);
      ASSERT_EQ(got.data_type(), dtype);
      const double close = 4 * Epsilon(dtype) + 16 * Epsilon(kFloat32) * (dtype == kBFloat16);
      const Doubles ys = Values(got), dxs = Values(gradient);
      // Ranges of more than three axes take two calls, which round in between.
      for (size_t i = 0; i < ys.size(); ++i)
        ASSERT_NEAR(ys[i], y[i], 4 * close * y_size[i] + 1e-13) << i;
      for (size_t i = 0; i < dxs.size(); ++i)
        ASSERT_NEAR(dxs[i], dx[i], 4 * close * dx_size[i] + 1e-13) << i;
    }
  }
}

TEST(Interpolate, NearestOfEveryType) {
  Random random(2);
  for (const DType dtype : test::kTypes) {
    const Tensor x = Whole(random, {2, 3, 4}, dtype);
    const InterpolationHandle nearest(InterpolationMode::kNearest, CoordinateMode::kAsymmetric,
                                      NearestMode::kFloor);
    test::ExpectCopied(Interpolate(nearest, x, {1, 2}, {6, 7}), x, {2, 6, 7},
                       [](const Index& i) { return i[0] * 12 + i[1] / 2 * 4 + i[2] * 4 / 7; });
  }
}

TEST(Interpolate, InfinitiesWithoutAShareDoNotCount) {
  const InterpolationHandle linear(InterpolationMode::kLinear, CoordinateMode::kAlignCorners);
  const Tensor x = FromValues({3}, {1, HUGE_VAL, 3});
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    EXPECT_EQ(Values(Interpolate(linear, x, {0}, {5})),
              (Doubles{1, HUGE_VAL, HUGE_VAL, HUGE_VAL, 3}));
  }
}

TEST(Interpolate, EmptyAndUnchanged) {
  const InterpolationHandle linear(InterpolationMode::kLinear);
  EXPECT_EQ(Interpolate(linear, Tensor({0, 3}), {1}, {5}).shape(), Shape({0, 5}));
  EXPECT_EQ(Interpolate(linear, Tensor({2, 3}), {1}, {0}).shape(), Shape({2, 0}));
  const Tensor dx = InterpolateBackward(linear, Tensor({2, 0}), {2, 3}, {1});
  EXPECT_EQ(Values(dx), Doubles(6, 0));
  const Tensor x = FromValues({2}, {1, 2});
  EXPECT_EQ(Values(Interpolate(linear, x, {0}, {2})), (Doubles{1, 2}));
  EXPECT_NE(Interpolate(linear, x, {}, {}).block(), x.block());
}

TEST(Interpolate, Errors) {
  const InterpolationHandle linear(InterpolationMode::kLinear);
  const Tensor x({2, 3});
  const auto fails = [&](const std::vector<int64_t>& axes, const std::vector<int64_t>& sizes,
                         const std::vector<double>& scales, const std::string& message) {
    ExpectError<std::invalid_argument>([&] { Interpolate(linear, x, axes, sizes, scales); },
                                       message);
  };
  fails({0}, {1, 2}, {}, "[Interpolate] axes, sizes and scales must be of one length");
  fails({0, -2}, {1, 2}, {}, "axis 0 appears twice for x (2, 3)");
  fails({2}, {1}, {}, "[Interpolate]");
  fails({0}, {-1}, {}, "axis 0 of x (2, 3) cannot have size -1");
  fails({0}, {2}, {0}, "scales must be positive, got 0");
  fails({0}, {2}, {1e-300}, "scale 1e-300 of an axis with size 2 is out of range");
  ExpectError<std::invalid_argument>([&] { Interpolate(linear, Tensor({0}), {0}, {2}); },
                                     "axis 0 of x (0,) cannot have size 2");
  ExpectError<TypeError>([&] { Interpolate(linear, x.AsType(kInt32), {0}, {3}); }, "float type");
  ExpectError<std::invalid_argument>(
      [&] {
        InterpolateBackward(linear, x, {2, 4, 1}, {1});
      },
      "[InterpolateBackward] dy (2, 3) must be of the rank");
  ExpectError<std::invalid_argument>(
      [&] {
        InterpolateBackward(linear, x, {1, 4}, {1});
      },
      "dy must have shape (1, 3)");
  ExpectError<std::invalid_argument>([] { InterpolationHandle(static_cast<InterpolationMode>(4)); },
                                     "unknown mode 4");
}

}  // namespace
}  // namespace singa
