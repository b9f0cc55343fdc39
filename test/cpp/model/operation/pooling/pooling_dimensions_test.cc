// Pooling of signals (N, C, L) and volumes (N, C, D, H, W), by adaptive windows, and by p-norms.

#include "singa/operation/pooling.h"

#include <cmath>
#include <functional>
#include <memory>

#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::ExpectError;
using test::ExpectNear;
using test::FromValues;
using test::Index;
using test::kImplementations;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Values;
using Vector = std::vector<double>;
using Ints = std::vector<int64_t>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};

/// A window along one axis: the elements that it reads, and its part of an average's divisor.
struct Span {
  Ints inside;
  int64_t divisor = 0;
};

/// The window `o` along an axis, by the definition.
Span SpanOf(const Recorder::Axis& axis, bool adaptive, bool count_padding, int64_t o) {
  Span span;
  if (adaptive) {
    for (int64_t i = o * axis.size / axis.windows;
         static_cast<double>(i) * static_cast<double>(axis.windows) <
         static_cast<double>(o + 1) * static_cast<double>(axis.size);
         ++i)
      span.inside.push_back(i);
    span.divisor = static_cast<int64_t>(span.inside.size());
    return span;
  }
  for (int64_t k = 0; k < axis.kernel; ++k) {
    const int64_t at = o * axis.stride - axis.before + k * axis.dilation;
    const bool is_inside = at >= 0 && at < axis.size;
    if (is_inside) span.inside.push_back(at);
    span.divisor += count_padding ? at < axis.size + axis.after : is_inside;
  }
  return span;
}

/// Calls visit(output, inputs, divisor) for each window, with row-major positions.
template <class F>
void ForWindows(const Recorder& g, PoolMode mode, const F& visit) {
  const auto& axes = g.axes;
  const Shape output = {g.batchsize * g.out_channels, g.conv_depth(), g.conv_height(),
                        g.conv_width()};
  test::ForEachIndex(output, [&](const Index& at) {
    Span spans[3];
    for (size_t i = 0; i < 3; ++i)
      spans[i] = SpanOf(axes[i], g.adaptive, mode == PoolMode::kAverageIncludePad, at[i + 1]);
    std::vector<size_t> inputs;
    for (int64_t d : spans[0].inside)
      for (int64_t h : spans[1].inside)
        for (int64_t w : spans[2].inside)
          inputs.push_back(
              static_cast<size_t>(((at[0] * g.depth() + d) * g.height() + h) * g.width() + w));
    const int64_t divisor = spans[0].divisor * spans[1].divisor * spans[2].divisor;
    visit(test::Flat(output, at), inputs, static_cast<double>(divisor));
  });
}

using Forward = std::function<std::vector<Tensor>(const Tensor& x, bool training)>;
using Backward =
    std::function<Tensor(const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& saved)>;

/// Compares with the definition on both implementations.
void CheckPooling(Random& random, const Recorder& g, PoolMode mode, DType dtype,
                  const Forward& forward, const Backward& backward) {
  SCOPED_TRACE(g.ToString() + " " + DTypeName(dtype) + " mode " +
               std::to_string(static_cast<int>(mode)));
  Tensor x = AnyTensor(random, g.input_shape(), dtype, -3, 3);
  if (random.Coin()) {  // ties
    Vector whole = Values(x);
    for (double& value : whole) value = std::round(value);
    x = FromValues(g.input_shape(), whole, dtype);
  }
  const Tensor dy = AnyTensor(random, g.output_shape(), dtype);
  const Vector in = Values(x), gradient = Values(dy);
  const double eps = dtype == kFloat64 ? 0x1p-52 : 0x1p-23;
  const double bound = 8 * eps * std::sqrt(static_cast<double>(g.taps()));
  Vector y(gradient.size()), y_bound(y.size()), dx(in.size()), dx_bound(in.size());
  Vector positions(y.size(), -1);
  ForWindows(g, mode, [&](size_t o, const std::vector<size_t>& inputs, double divisor) {
    if (mode == PoolMode::kMax) {
      y[o] = -kInf;
      if (inputs.empty()) return;
      size_t best = inputs.front();
      for (size_t i : inputs)
        if (in[i] > in[best]) best = i;
      y[o] = in[best];
      positions[o] = static_cast<double>(best % static_cast<size_t>(g.pixels()));
      dx[best] += gradient[o];
      dx_bound[best] += bound * std::abs(gradient[o]);
      return;
    }
    double sum = 0, size = 0;
    for (size_t i : inputs) {
      sum += in[i];
      size += std::abs(in[i]);
      dx[i] += gradient[o] / divisor;
      dx_bound[i] += bound * std::abs(gradient[o]) / divisor;
    }
    y[o] = divisor > 0 ? sum / divisor : 0;
    y_bound[o] = divisor > 0 ? bound * size / divisor : 0;
  });
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = forward(x, true);
    ASSERT_EQ(out[0].shape(), g.output_shape());
    EXPECT_EQ(out[0].data_type(), dtype);
    ExpectNear(out[0], y, y_bound, "y");
    EXPECT_EQ(Values(forward(x, false)[0]), Values(out[0]));
    if (mode == PoolMode::kMax) {
      EXPECT_EQ(Values(out[1]), positions);
    }
    ExpectNear(backward(dy, x, out[0], out[1]), dx, dx_bound, "dx");
    ExpectNear(backward(dy, x, {}, {}), dx, dx_bound, "dx, nothing saved");
  }
}

TEST(PoolingDimensions, SignalsAndVolumes) {
  Random random(71);
  for (int done = 0; done < 120 && !testing::Test::HasFailure();) {
    const int spatial = random.Coin() ? 1 : 3;
    Shape shape = {random.Int(1, 3), random.Int(1, 20)};
    Ints kernel, stride, dilation, padding;
    for (int i = 0; i < spatial; ++i) {
      shape.push_back(random.Int(1, spatial == 1 ? 30 : 7));
      kernel.push_back(random.Int(1, 3));
      stride.push_back(random.Int(1, 3));
      dilation.push_back(random.Int(0, 2) ? 1 : 2);
    }
    const bool both = random.Coin();
    for (int i = 0; i < (both ? 2 : 1) * spatial; ++i)
      padding.push_back(random.Int(0, dilation[i % spatial] * (kernel[i % spatial] - 1)));
    const auto mode = static_cast<PoolMode>(random.Int(0, 2));
    std::unique_ptr<PoolingHandle> handle;
    try {
      handle = std::make_unique<PoolingHandle>(Tensor(shape), kernel, stride, padding,
                                               mode == PoolMode::kMax, random.Coin(),
                                               mode == PoolMode::kAverageIncludePad, dilation);
    } catch (const std::invalid_argument&) {
      continue;  // no window fits
    }
    CheckPooling(
        random, handle->recorder, mode, kTypes[done++ % 5],
        [&](const Tensor& x, bool training) { return PoolingForward(*handle, x, training); },
        [&](const Tensor& dy, const Tensor& x, const Tensor& y, const Tensor& saved) {
          return PoolingBackward(*handle, dy, x, y, saved);
        });
  }
}

TEST(PoolingDimensions, AdaptiveWindows) {
  Random random(72);
  for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i) {
    const int spatial = 1 + i % 3;
    Shape shape = {random.Int(1, 3), random.Int(1, 20)};
    Ints output;
    for (int axis = 0; axis < spatial; ++axis) {
      shape.push_back(random.Int(1, spatial == 3 ? 6 : 12));
      output.push_back(random.Int(0, 3) ? random.Int(1, 7) : 1);
    }
    const bool is_max = random.Coin();
    CheckPooling(
        random, AdaptivePoolRecorder("test", shape, output),
        is_max ? PoolMode::kMax : PoolMode::kAverageExcludePad, kTypes[i % 5],
        [&](const Tensor& x, bool training) {
          return AdaptivePoolForward(x, output, is_max, training);
        },
        [&](const Tensor& dy, const Tensor& x, const Tensor&, const Tensor& saved) {
          return AdaptivePoolBackward(dy, shape, is_max, x, saved);
        });
  }
}

TEST(PoolingDimensions, NanWinsEveryMaximum) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const Tensor x = FromValues({1, 1, 5}, {1, kNan, -kInf, -kInf, 2});
    const auto y = AdaptivePoolForward(x, {3}, true);  // [0, 2), [1, 4), [3, 5)
    EXPECT_TRUE(std::isnan(Values(y[0])[0]) && std::isnan(Values(y[0])[1]));
    EXPECT_EQ(Values(y[0])[2], 2);
    EXPECT_EQ(Values(y[1]), Vector({1, 1, 4}));
    const Tensor dx = AdaptivePoolBackward(FromValues({1, 1, 3}, {1, 2, 4}), {1, 1, 5}, true, x);
    EXPECT_EQ(Values(dx), Vector({0, 3, 0, 0, 4}));
  }
}

TEST(PoolingDimensions, WrongAdaptiveCalls) {
  using E = std::invalid_argument;
  const Tensor x({2, 3, 7}), dy({2, 3, 3}), flat({2, 3});
  ExpectError<E>(
      [&] {
        AdaptivePoolForward(x, {2, 2}, true);
      },
      "[AdaptivePoolForward] output_size must be (w); got (2, 2)");
  ExpectError<E>([&] { AdaptivePoolForward(flat, {2}, true); }, "got shape (2, 3)");
  ExpectError<E>([&] { AdaptivePoolBackward(dy, x.shape(), true); }, "x and saved are empty");
  ExpectError<E>([&] { AdaptivePoolBackward(flat, x.shape(), false); }, "as many axes as x");
  ExpectError<E>([&] { AdaptivePoolBackward(dy, x.shape(), false, dy); }, "x must have shape");
  ExpectError<TypeError>([&] { AdaptivePoolForward(x.AsType(kInt32), {2}, true); }, "float type");
}

TEST(PoolingDimensions, NormsOfWindows) {
  Random random(73);
  for (int i = 0; i < 60 && !testing::Test::HasFailure(); ++i) {
    const int spatial = 1 + i % 3;
    Shape shape = {2, random.Int(1, 5)};
    Ints kernel, stride;
    for (int axis = 0; axis < spatial; ++axis) {
      shape.push_back(random.Int(4, 7));
      kernel.push_back(random.Int(1, 3));
      stride.push_back(random.Int(1, 3));
    }
    const double powers[] = {2, 1, 3, 0.5, 2.5};
    const double p = powers[i % 5];
    const DType dtype = kTypes[random.Int(0, 4)];
    // No tiny values: their slopes are large where p < 1.
    Vector in(static_cast<size_t>(shape.Count()));
    for (double& value : in) value = random.Real(0.1, 2) * (random.Coin() ? 1 : -1);
    const Tensor x = FromValues(shape, in, dtype);
    const Vector rounded = Values(x);
    const PoolingHandle handle(x, kernel, stride, Ints(static_cast<size_t>(spatial), 0), false,
                               random.Coin());
    const Recorder& g = handle.recorder;
    SCOPED_TRACE(g.ToString() + " p " + std::to_string(p) + " " + DTypeName(dtype));
    const Tensor dy = RandomTensor(random, g.output_shape(), dtype);
    const Vector gradient = Values(dy);
    // Backward reads y as it was rounded.
    const double unit = std::max(dtype == kFloat64 ? 0x1p-52 : 0x1p-23, test::Epsilon(dtype));
    Vector y(gradient.size()), y_bound(y.size()), dx(in.size()), dx_bound(in.size());
    ForWindows(g, handle.mode, [&](size_t o, const std::vector<size_t>& inputs, double divisor) {
      const double scale = static_cast<double>(g.taps()) / divisor;
      double sum = 0;
      for (size_t at : inputs) sum += std::pow(std::abs(rounded[at]), p) * scale;
      y[o] = std::pow(sum, 1 / p);
      y_bound[o] = 32 * unit * y[o];
      for (size_t at : inputs) {
        const double slope = scale * std::pow(std::abs(rounded[at]) / y[o], p - 1);
        dx[at] += gradient[o] * slope * (rounded[at] < 0 ? -1 : 1);
        dx_bound[at] += 64 * unit * std::abs(gradient[o]) * slope;
      }
    });
    const Tensor got = LpPoolForward(handle, x, p);
    EXPECT_EQ(got.data_type(), dtype);
    ExpectNear(got, y, y_bound, "y");
    ExpectNear(LpPoolBackward(handle, dy, x, got, p), dx, dx_bound, "dx");
  }
}

TEST(PoolingDimensions, NormsOfZeros) {
  for (double p : {0.5, 1.0, 2.0, 3.0}) {
    const Tensor x = FromValues({1, 1, 4}, {0, 0, 3, 0});
    const PoolingHandle handle(x, {2}, {2}, {0}, false);
    const Tensor y = LpPoolForward(handle, x, p);
    ExpectNear(y, {0, 3}, {0, 1e-5}, "y");
    const Tensor dx = LpPoolBackward(handle, FromValues({1, 1, 2}, {5, 7}), x, y, p);
    ExpectNear(dx, {0, 0, 7, 0}, {0, 0, 1e-5, 0}, "dx");
  }
}

TEST(PoolingDimensions, WrongNorms) {
  using E = std::invalid_argument;
  const Tensor x({1, 2, 8});
  const PoolingHandle good(x, {2}, {2}, {0}, false), max(x, {2}, {2}, {0});
  const PoolingHandle padded(x, {2}, {2}, {1}, false);
  ExpectError<E>([&] { LpPoolForward(good, x, 0); }, "[LpPoolForward] p must be finite");
  ExpectError<E>([&] { LpPoolForward(good, x, kInf); }, "p must be finite");
  ExpectError<E>([&] { LpPoolForward(good, x, kNan); }, "p must be finite");
  ExpectError<E>([&] { LpPoolForward(max, x, 2); }, "one of averages");
  ExpectError<E>([&] { LpPoolForward(padded, x, 2); }, "without padding");
  ExpectError<E>([&] { LpPoolBackward(good, x, x, Tensor(), 2); }, "y is an empty tensor");
}

}  // namespace
}  // namespace singa
