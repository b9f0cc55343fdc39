#include "singa/operation/pooling.h"

#include "singa/core/device.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::ExpectError;
using test::ExpectNear;
using test::FromValues;
using test::kImplementations;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Values;
using Vector = std::vector<double>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  Shape shape;
  std::vector<int64_t> kernel, stride, padding;
  PoolMode mode = PoolMode::kMax;
  bool ceil_mode = false;
  std::vector<int64_t> dilation{1, 1};
  DType dtype = kFloat32;

  std::string ToString() const {
    std::ostringstream out;
    out << shape << " " << DTypeName(dtype) << " mode " << static_cast<int>(mode) << " ceil "
        << ceil_mode;
    for (const auto* list : {&kernel, &stride, &padding, &dilation}) {
      out << " (";
      for (int64_t value : *list) out << value << ' ';
      out << ")";
    }
    return out.str();
  }
};

PoolingHandle Handle(const Case& c, const Tensor& x) {
  return PoolingHandle(x, c.kernel, c.stride, c.padding, c.mode == PoolMode::kMax, c.ceil_mode,
                       c.mode == PoolMode::kAverageIncludePad, c.dilation);
}

/// A window: the positions of x that it covers, and the divisor of its average.
struct Window {
  std::vector<size_t> inside;
  double divisor = 0;
};

/// Calls visit(output position, window) for each window of each image, by the definition.
template <class F>
void ForWindows(const Case& c, const Shape& output, const F& visit) {
  const int64_t height = c.shape[2], width = c.shape[3];
  const int64_t top = c.padding[0], left = c.padding[1];
  const int64_t bottom = c.padding.size() == 4 ? c.padding[2] : top;
  const int64_t right = c.padding.size() == 4 ? c.padding[3] : left;
  size_t o = 0;
  for (int64_t image = 0; image < c.shape[0] * c.shape[1]; ++image)
    for (int64_t oh = 0; oh < output[2]; ++oh)
      for (int64_t ow = 0; ow < output[3]; ++ow, ++o) {
        Window window;
        for (int64_t kh = 0; kh < c.kernel[0]; ++kh)
          for (int64_t kw = 0; kw < c.kernel[1]; ++kw) {
            const int64_t h = oh * c.stride[0] - top + kh * c.dilation[0];
            const int64_t w = ow * c.stride[1] - left + kw * c.dilation[1];
            const bool inside = h >= 0 && h < height && w >= 0 && w < width;
            if (inside) window.inside.push_back((image * height + h) * width + w);
            if (c.mode == PoolMode::kAverageIncludePad ? h < height + bottom && w < width + right
                                                       : inside)
              ++window.divisor;
          }
        visit(o, window);
      }
}

size_t FirstMaximum(const Vector& x, const Window& window) {
  size_t best = window.inside.front();
  for (size_t i : window.inside)
    if (x[i] > x[best]) best = i;
  return best;
}

Case RandomCase(Random& random) {
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  Case c;
  for (;;) {
    c.shape = {random.Int(1, 3), random.Int(1, 20), random.Int(1, 12), random.Int(1, 12)};
    c.kernel = {random.Int(1, 4), random.Int(1, 4)};
    c.stride = {random.Int(1, 4), random.Int(1, 4)};
    c.dilation = random.Int(0, 3) ? std::vector<int64_t>{1, 1}
                                  : std::vector<int64_t>{random.Int(1, 2), random.Int(1, 3)};
    const int64_t span_h = c.dilation[0] * (c.kernel[0] - 1);
    const int64_t span_w = c.dilation[1] * (c.kernel[1] - 1);
    c.padding = {random.Int(0, span_h), random.Int(0, span_w)};
    if (random.Coin()) {
      c.padding.push_back(random.Int(0, span_h));
      c.padding.push_back(random.Int(0, span_w));
    }
    c.mode = static_cast<PoolMode>(random.Int(0, 2));
    c.ceil_mode = random.Coin();
    c.dtype = kTypes[random.Int(0, 5)];
    const int64_t bottom = c.padding[c.padding.size() - 2], right = c.padding.back();
    if (c.shape[2] + c.padding[0] + bottom > span_h && c.shape[3] + c.padding[1] + right > span_w)
      return c;
  }
}

void CheckCase(Random& random, const Case& c) {
  SCOPED_TRACE(c.ToString());
  // Few different values, so that there are ties.
  Tensor x = AnyTensor(random, c.shape, c.dtype, -3, 3);
  if (random.Coin()) {
    Vector whole = Values(x);
    for (double& value : whole) value = std::round(value);
    x = FromValues(c.shape, whole, c.dtype);
  }
  const PoolingHandle handle = Handle(c, x);
  const Shape output = handle.recorder.output_shape();
  const Tensor dy = AnyTensor(random, output, c.dtype);
  const Vector in = Values(x), gradient = Values(dy);
  const double eps = c.dtype == kFloat64 ? 0x1p-52 : 0x1p-23;
  const double bound = 8 * eps * std::sqrt(c.kernel[0] * c.kernel[1]);

  Vector y(output.Count()), y_tolerance(y.size(), 0.0), dx(in.size(), 0.0), dx_tolerance(in.size());
  ForWindows(c, output, [&](size_t o, const Window& window) {
    if (c.mode == PoolMode::kMax) {
      y[o] = -kInf;
      if (window.inside.empty()) return;
      const size_t at = FirstMaximum(in, window);
      y[o] = in[at];
      dx[at] += gradient[o];
      dx_tolerance[at] += bound * std::abs(gradient[o]);
      return;
    }
    double sum = 0, magnitude = 0;
    for (size_t i : window.inside) {
      sum += in[i];
      magnitude += std::abs(in[i]);
      dx[i] += gradient[o] / window.divisor;
      dx_tolerance[i] += bound * std::abs(gradient[o]) / window.divisor;
    }
    y[o] = window.divisor > 0 ? sum / window.divisor : 0;
    y_tolerance[o] = window.divisor > 0 ? bound * magnitude / window.divisor : 0;
  });

  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = PoolingForward(handle, x);
    ASSERT_EQ(out.size(), 2u);
    ASSERT_EQ(out[0].shape(), output);
    EXPECT_EQ(out[0].data_type(), c.dtype);
    ExpectNear(out[0], y, y_tolerance, "y");
    EXPECT_EQ(out[1].empty(), c.mode != PoolMode::kMax);
    ExpectNear(PoolingBackward(handle, dy, x, out[0], out[1]), dx, dx_tolerance, "dx");
    // Without saved positions, backward recomputes them from x.
    const auto inference = PoolingForward(handle, x, false);
    EXPECT_TRUE(inference[1].empty());
    EXPECT_EQ(Values(inference[0]), Values(out[0]));
    ExpectNear(PoolingBackward(handle, dy, x, {}, {}), dx, dx_tolerance, "dx, nothing saved");
  }
}

TEST(Pooling, MatchesTheDefinitionOverRandomGeometries) {
  Random random(61);
  for (int i = 0; i < 330 && !testing::Test::HasFailure(); ++i)
    CheckCase(random, RandomCase(random));
}

TEST(Pooling, MatchesTheDefinitionForTheWindowsOfNetworks) {
  Random random(62);
  for (PoolMode mode :
       {PoolMode::kMax, PoolMode::kAverageExcludePad, PoolMode::kAverageIncludePad}) {
    CheckCase(random, {{2, 32, 14, 14}, {3, 3}, {2, 2}, {1, 1}, mode});
    CheckCase(random, {{2, 16, 13, 13}, {3, 3}, {2, 2}, {0, 0}, mode, true});
    CheckCase(random, {{2, 17, 12, 12}, {3, 3}, {1, 1}, {1, 1}, mode});
    CheckCase(random, {{2, 24, 7, 7}, {7, 7}, {1, 1}, {0, 0}, mode});
    CheckCase(random, {{1, 3, 40, 41}, {20, 17}, {3, 3}, {4, 5, 6, 7}, mode});
    CheckCase(random, {{2, 5, 1, 33}, {1, 3}, {1, 2}, {0, 1}, mode});
    CheckCase(random, {{2, 16, 8, 8}, {2, 2}, {2, 2}, {0, 0, 1, 1}, mode});
    CheckCase(random, {{1, 19, 97, 90}, {3, 3}, {2, 2}, {1, 1}, mode});
  }
}

TEST(Pooling, RowsOfEveryLengthSaveTheFirstMaximumOrNan) {
  Random random(66);
  const double values[] = {0, 1, 1, 2, -kInf, kInf, kNan};
  for (int64_t width = 1; width <= 41; ++width) {
    for (int64_t stride = 1; stride <= 3; ++stride) {
      const int64_t kernel = random.Int(1, std::min<int64_t>(width, 5));
      const Case c{{2, 3, 5, width}, {2, kernel}, {stride, stride}, {1, random.Int(0, kernel / 2)}};
      SCOPED_TRACE(c.ToString());
      Vector in(c.shape.Count());
      const int64_t kinds = random.Int(4, 7);  // most rows without NaN
      for (double& value : in) value = values[random.Int(0, kinds - 1)];
      const Tensor x = FromValues(c.shape, in);
      const PoolingHandle handle = Handle(c, x);
      Vector positions(handle.recorder.output_shape().Count());
      ForWindows(c, handle.recorder.output_shape(), [&](size_t o, const Window& window) {
        size_t best = window.inside.front();
        for (size_t i : window.inside)
          if (in[i] > in[best] || (std::isnan(in[i]) && !std::isnan(in[best]))) best = i;
        positions[o] = static_cast<double>(best % static_cast<size_t>(5 * width));
      });
      for (Preference preference : kImplementations) {
        PreferenceScope scope(preference);
        const auto out = PoolingForward(handle, x);
        EXPECT_EQ(Values(out[1]), positions) << PreferenceName(preference);
        const Vector y = Values(out[0]), alone = Values(PoolingForward(handle, x, false)[0]);
        for (size_t o = 0; o < y.size(); ++o)
          EXPECT_TRUE(y[o] == alone[o] || (std::isnan(y[o]) && std::isnan(alone[o])))
              << PreferenceName(preference) << ": " << y[o] << ", without positions " << alone[o];
      }
    }
  }
}

TEST(Pooling, SavedOfOneImplementationServesTheOther) {
  Random random(63);
  const Case c{{2, 16, 9, 9}, {3, 3}, {2, 2}, {1, 1}};
  const Tensor x = RandomTensor(random, c.shape);
  const PoolingHandle handle = Handle(c, x);
  const Tensor dy = RandomTensor(random, handle.recorder.output_shape());
  std::vector<Vector> results;
  for (Preference forward : kImplementations) {
    for (Preference backward : kImplementations) {
      PreferenceScope outer(forward);
      const auto out = PoolingForward(handle, x);
      PreferenceScope inner(backward);
      results.push_back(Values(PoolingBackward(handle, dy, x, out[0], out[1])));
    }
  }
  for (const Vector& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Pooling, NanWinsEveryMaximum) {
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    for (int64_t at = 0; at < 4; ++at) {
      Vector values{1, 2, 3, 4, -kInf, -kInf, -kInf, -kInf};
      values[at] = kNan;
      const Tensor x = FromValues({1, 2, 2, 2}, values);
      const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
      const auto out = PoolingForward(handle, x);
      const Vector y = Values(out[0]);
      EXPECT_TRUE(std::isnan(y[0]));
      EXPECT_EQ(y[1], -kInf);
      const Vector dx = Values(PoolingBackward(handle, Full({1, 2, 1, 1}, 5), x, out[0], out[1]));
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(dx[i], i == at ? 5 : 0);
      EXPECT_EQ(dx[4], 5);
    }
  }
}

TEST(Pooling, WindowsThatSeeNothing) {
  // Taps at -1 and 1 of an input of one element.
  const Tensor x = Full({1, 1, 1, 1}, 7);
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const PoolingHandle max(x, {1, 2}, {1, 1}, {0, 1}, true, false, false, {1, 2});
    const auto out = PoolingForward(max, x);
    EXPECT_EQ(Values(out[0]), Vector({-kInf}));
    EXPECT_EQ(Values(PoolingBackward(max, Full({1, 1, 1, 1}, 1), x, out[0], out[1])), Vector({0}));
    const PoolingHandle average(x, {1, 2}, {1, 1}, {0, 1}, false, false, false, {1, 2});
    EXPECT_EQ(Values(PoolingForward(average, x)[0]), Vector({0}));
    EXPECT_EQ(Values(PoolingBackward(average, Full({1, 1, 1, 1}, 1), x, {}, {})), Vector({0}));
  }
}

TEST(Pooling, GlobalAverage) {
  Random random(64);
  for (DType dtype : {kFloat32, kFloat64, kBFloat16, kFloat16}) {
    for (Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const Shape shape{3, 17, random.Int(1, 30), random.Int(1, 30)};
      const Tensor x = AnyTensor(random, shape, dtype),
                   dy = AnyTensor(random, {3, 17, 1, 1}, dtype);
      const double n = static_cast<double>(shape[2] * shape[3]);
      const Vector in = Values(x), gradient = Values(dy);
      Vector y(51, 0.0), magnitude(51, 0.0), dx(in.size()), tiny(in.size());
      const double eps = dtype == kFloat64 ? 0x1p-52 : 0x1p-23;
      for (size_t i = 0; i < in.size(); ++i) {
        const size_t o = i / static_cast<size_t>(n);
        y[o] += in[i] / n;
        magnitude[o] += 8 * eps * std::sqrt(n) * std::abs(in[i]) / n;
        dx[i] = gradient[o] / n;
        tiny[i] = 8 * eps * std::abs(dx[i]);
      }
      ExpectNear(GlobalAveragePoolForward(x), y, magnitude, "y");
      ExpectNear(GlobalAveragePoolBackward(dy, shape), dx, tiny, "dx");
    }
  }
}

TEST(Pooling, HandleServesOtherSizesAndEmptyBatches) {
  Random random(65);
  const Tensor x = RandomTensor(random, {2, 3, 8, 8});
  const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    EXPECT_EQ(PoolingForward(handle, RandomTensor(random, {5, 3, 10, 6}))[0].shape(),
              Shape({5, 3, 5, 3}));
    const Tensor none(Shape{0, 3, 8, 8});
    const auto out = PoolingForward(handle, none);
    EXPECT_EQ(out[0].shape(), Shape({0, 3, 4, 4}));
    EXPECT_EQ(PoolingBackward(handle, out[0], none, out[0], out[1]).shape(), none.shape());
    EXPECT_EQ(GlobalAveragePoolForward(none).shape(), Shape({0, 3, 1, 1}));
    EXPECT_EQ(GlobalAveragePoolBackward(Tensor(Shape{0, 3, 1, 1}), {0, 3, 8, 8}).shape(),
              Shape({0, 3, 8, 8}));
    // Average pooling does not need x; the input size is then the handle's.
    const PoolingHandle average(x, {2, 2}, {2, 2}, {0, 0}, false);
    EXPECT_EQ(PoolingBackward(average, Full({7, 3, 4, 4}, 4), {}, {}, {}).shape(),
              Shape({7, 3, 8, 8}));
  }
}

TEST(Pooling, RefusesWhatIsWrong) {
  using Error = std::invalid_argument;
  const Tensor x = Full({1, 2, 4, 4}, 1);
  const PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  const Tensor dy = Full({1, 2, 2, 2}, 1);
  ExpectError<Error>([] { PoolingHandle({}, {2, 2}, {2, 2}, {0, 0}); }, "[Pooling] x is an empty");
  ExpectError<TypeError>(
      [] {
        PoolingHandle(Tensor(Shape{1, 1, 2, 2}, nullptr, kInt32), {2, 2}, {2, 2}, {0, 0});
      },
      "float type");
  ExpectError<Error>([&] { PoolingHandle(x, {5, 2}, {2, 2}, {0, 0}); }, "[Pooling] kernel 5");
  ExpectError<Error>([&] { PoolingHandle(x, {2, 2}, {0, 2}, {0, 0}); }, "stride");
  ExpectError<Error>([&] { PoolingHandle(x, {2, 2}, {2, 2}, {2, 0}); }, "padding");
  ExpectError<Error>(
      [&] {
        PoolingForward(handle, Full({1, 3, 4, 4}, 1));
      },
      "[PoolingForward] input has 3 channels");
  ExpectError<Error>([&] { PoolingForward(handle, Full({2, 4, 4}, 1)); }, "(2, 4, 4)");
  ExpectError<Error>([&] { PoolingBackward(handle, x, x, {}, {}); },
                     "[PoolingBackward] dy must have shape (1, 2, 2, 2), got (1, 2, 4, 4)");
  ExpectError<Error>([&] { PoolingBackward(handle, dy, {}, {}, {}); }, "x is an empty tensor");
  ExpectError<TypeError>([&] { PoolingBackward(handle, dy, x.AsType(kFloat64), {}, {}); },
                         "x must be float32");
  ExpectError<Error>([&] { PoolingBackward(handle, dy, x, {}, Full({1}, 0, nullptr, kInt32)); },
                     "saved must have shape");
  ExpectError<TypeError>([&] { PoolingBackward(handle, dy, x, {}, dy); }, "saved must be int32");
  ExpectError<Error>(
      [&] {
        PoolingBackward(handle, dy, Full({1, 2, 4, 4}, 1, CreateCpuDevice()), {}, {});
      },
      "x is on");
  ExpectError<Error>(
      [] {
        GlobalAveragePoolForward(Full({2, 3}, 1));
      },
      "[GlobalAveragePoolForward] input must be (N, C, L), (N, C, H, W)");
  ExpectError<Error>(
      [&] {
        GlobalAveragePoolBackward(dy, {1, 2, 4, 4});
      },
      "dy must have shape (1, 2, 1, 1)");
}

TEST(Pooling, RefusesAModeThatIsNone) {
  const Tensor x = Full({1, 1, 4, 4}, 1);
  PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  handle.mode = static_cast<PoolMode>(9);
  EXPECT_THROW(PoolingForward(handle, x), std::invalid_argument);
  EXPECT_THROW(PoolingBackward(handle, Full({1, 1, 2, 2}, 1), x, {}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace singa
