#include "singa/operation/quantized.h"

#include <array>

#include "core/layout/channel_lanes.h"
#include "model/operation/conv/conv_naive.h"
#include "support.h"

namespace singa::test {
namespace {

using QuantizedTest = EachPreference;
INSTANTIATE_TEST_SUITE_P(Implementations, QuantizedTest,
                         testing::Values(Preference::kReference, Preference::kFastest),
                         [](const auto& info) { return std::string(PreferenceName(info.param)); });

Vector Integers(Random& random, int64_t size, int64_t low, int64_t high) {
  Vector values(static_cast<size_t>(size));
  for (double& v : values) v = static_cast<double>(random.Int(low, high));
  return values;
}

Tensor Number(double value, DType dtype) { return FromValues({1}, {value}, dtype); }

double Low(DType dtype) { return dtype == kInt8 ? -128 : 0; }
double High(DType dtype) { return dtype == kInt8 ? 127 : 255; }

/// `value`, which is not quantized yet, as an integer of the type.
double Step(double value, double zero, DType dtype) {
  return std::clamp(std::nearbyint(value) + zero, Low(dtype), High(dtype));
}

/// Random arguments of a product with exact sums, and the check of its result.
struct Case {
  DType x_type, y_type;
  double x_zero, y_zero = 0;
  bool relu, gelu = false;
  double y_scale = 1;
  Vector x, w, scale, bias, sums;

  Case(Random& random, int64_t x_size, int64_t w_size, int64_t outputs, int64_t y_size,
       int64_t length)
      : x_type(random.Coin() ? kInt8 : kUInt8),
        y_type(std::array{kInt8, kUInt8, kFloat32, kInt32}[random.Int(0, 3)]),
        x_zero(random.Int(0, 2)
                   ? static_cast<double>(random.Int(static_cast<int64_t>(Low(x_type)),
                                                    static_cast<int64_t>(High(x_type))))
                   : 0),
        relu(y_type != kInt32 && random.Coin()),
        x(Integers(random, x_size, static_cast<int64_t>(Low(x_type)),
                   static_cast<int64_t>(High(x_type)))),
        w(Integers(random, w_size, -128, 127)),
        sums(static_cast<size_t>(y_size)) {
    const bool is_byte = y_type == kInt8 || y_type == kUInt8;
    if (is_byte && random.Coin()) y_zero = static_cast<double>(random.Int(-3, 120));
    // Most results lie within the range.
    const double size = (is_byte ? 60 : 1) / (std::sqrt(static_cast<double>(length)) * 8000);
    for (int64_t i = 0; i < outputs && y_type != kInt32; ++i)
      scale.push_back(static_cast<float>(random.Real(0.5, 2) * size));
    if (y_type != kInt32 && random.Coin())
      for (int64_t i = 0; i < outputs; ++i)
        bias.push_back(static_cast<float>(random.Real(-20, 20)));
  }

  Tensor x_zero_tensor() const { return x_zero == 0 ? Tensor() : Number(x_zero, kInt32); }
  Tensor y_zero_tensor() const { return y_zero == 0 ? Tensor() : Number(y_zero, kInt32); }
  static Tensor Row(const Vector& values) {
    return values.empty() ? Tensor()
                          : FromValues({static_cast<int64_t>(values.size())}, values, kFloat32);
  }

  /// `channel(i)`: the output of sum i.
  template <class Channel>
  void Check(const Tensor& y, const Shape& shape, const Channel& channel) const {
    ASSERT_EQ(y.shape(), shape);
    ASSERT_EQ(y.data_type(), y_type);
    const Vector found = Values(y);
    const bool exact = y_type == kInt32 || GetPreference() == Preference::kReference;
    for (size_t i = 0; i < found.size(); ++i) {
      const auto c = static_cast<size_t>(channel(static_cast<int64_t>(i)));
      double expected = sums[i], allowed = 0;
      if (y_type != kInt32) {
        const double term = expected * scale[c], shift = bias.empty() ? 0 : bias[c];
        expected = relu ? std::max(term + shift, 0.0) : term + shift;
        if (gelu) expected *= std::erfc(-expected / std::sqrt(2.0)) / 2;
        expected /= y_scale;
        allowed = y_type == kFloat32 ? 2e-6 * (std::abs(term) + std::abs(shift)) : exact ? 0 : 1;
        if (y_type != kFloat32) expected = Step(expected, y_zero, y_type);
      }
      ASSERT_LE(std::abs(found[i] - expected), allowed)
          << "element " << i << ": " << found[i] << " instead of " << expected;
    }
  }
};

void CheckConv(Random& random, const Recorder& g) {
  SCOPED_TRACE(g.ToString());
  Case c(random, g.input_shape().Count(), g.weight_shape().Count(), g.out_channels,
         g.output_shape().Count(), g.col_height);
  ForEachProduct(g, [&](int64_t xi, int64_t wi, int64_t yi) {
    c.sums[static_cast<size_t>(yi)] +=
        (c.x[static_cast<size_t>(xi)] - c.x_zero) * c.w[static_cast<size_t>(wi)];
  });
  const Tensor y =
      QuantizedConv(FromValues(g.input_shape(), c.x, c.x_type),
                    FromValues(g.weight_shape(), c.w, kInt8), c.x_zero_tensor(), Case::Row(c.scale),
                    Case::Row(c.bias), c.y_zero_tensor(), ConvHandle(g), c.y_type, c.relu);
  c.Check(y, g.output_shape(), [&](int64_t i) { return i / g.col_width % g.out_channels; });
}

TEST_P(QuantizedTest, RandomConvolutions) {
  Random random(1);
  for (int done = 0; done < 250;) {
    const int axes = random.Int(0, 3) ? 2 : static_cast<int>(random.Int(1, 3));
    int64_t group = 1, channels = random.Int(1, 40), filters = random.Int(1, 40);
    switch (random.Int(0, 3)) {
      case 0:
        group = channels = filters;  // depthwise
        break;
      case 1:
        group = random.Int(2, 4);
        channels = group * random.Int(1, 17);
        filters = group * random.Int(1, 17);
        break;
      default:
        break;
    }
    Shape x = {random.Int(1, 3), channels};
    for (int i = 0; i < axes; ++i) x.push_back(random.Int(1, axes == 3 ? 6 : 11));
    const bool square = random.Coin();
    const std::vector<int64_t> dilation = random.Int(0, 2)
                                              ? std::vector<int64_t>(static_cast<size_t>(axes), 1)
                                              : Numbers(random, axes, 1, 2);
    try {
      const Recorder g = ConvRecorder(
          "Conv", x,
          square ? std::vector<int64_t>(static_cast<size_t>(axes), 3) : Numbers(random, axes, 1, 4),
          Numbers(random, axes, 1, 2), Numbers(random, 2 * axes, 0, 2), filters, false, dilation,
          group);
      CheckConv(random, g);
      if (testing::Test::HasFatalFailure()) return;
      ++done;
    } catch (const std::invalid_argument&) {  // the kernel does not fit into the image
    }
  }
}

TEST_P(QuantizedTest, ColumnsOfPaddingOnOneSide) {
  const Shape shape{1, 16, 8, 8};
  for (const int64_t filters : {48, 49}) {
    const Tensor x = Full(shape, 1, nullptr, kUInt8),
                 W = Full({filters, 16, 7, 7}, 1, nullptr, kInt8);
    const Recorder g =
        ConvRecorder("Conv", shape, {7, 7}, {1, 1}, {6, 6, 0, 0}, filters, false, {1, 1}, 1);
    const Vector sums = Values(QuantizedConv(x, W, {}, {}, {}, {}, ConvHandle(g), kInt32));
    for (int64_t i = 0; i < static_cast<int64_t>(sums.size()); ++i)
      ASSERT_EQ(sums[static_cast<size_t>(i)],
                16 * std::min<int64_t>(i / 8 % 8 + 1, 7) * std::min<int64_t>(i % 8 + 1, 7))
          << i;
  }
}

TEST_P(QuantizedTest, RandomProducts) {
  Random random(2);
  for (int done = 0; done < 200; ++done) {
    const int64_t rows = random.Int(0, 40), length = random.Int(1, 150),
                  outputs = random.Int(1, 70);
    SCOPED_TRACE(rows * 1000000 + length * 1000 + outputs);
    Case c(random, rows * length, length * outputs, outputs, rows * outputs, length);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t k = 0; k < length; ++k)
        for (int64_t j = 0; j < outputs; ++j)
          c.sums[static_cast<size_t>(i * outputs + j)] +=
              (c.x[static_cast<size_t>(i * length + k)] - c.x_zero) *
              c.w[static_cast<size_t>(k * outputs + j)];
    c.gelu = c.y_type != kInt32 && !c.relu && random.Coin();
    if (c.y_type == kInt8 || c.y_type == kUInt8)
      c.y_scale = random.Coin() ? static_cast<float>(random.Real(0.5, 2)) : 1;
    const Shape shape = rows % 2 ? Shape{rows} : Shape{2, rows / 2};
    Shape x = shape, y = shape;
    x.push_back(length);
    y.push_back(outputs);
    const Tensor result = QuantizedMatMul(
        FromValues(x, c.x, c.x_type), FromValues({length, outputs}, c.w, kInt8), c.x_zero_tensor(),
        Case::Row(c.scale), Case::Row(c.bias), c.y_zero_tensor(), c.y_type, c.relu, c.gelu,
        c.y_scale == 1 ? Tensor() : Number(c.y_scale, kFloat32));
    c.Check(result, y, [&](int64_t i) { return i % outputs; });
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST_P(QuantizedTest, SumsWrapAround) {
  constexpr int64_t kLength = 70000;
  const Tensor x = Full({1, kLength}, 255, nullptr, kUInt8);
  const Tensor W = Full({kLength, 1}, -128, nullptr, kInt8);
  const Tensor y = QuantizedMatMul(x, W, {}, {}, {}, {}, kInt32);
  EXPECT_EQ(y.Item(), 4294967296.0 - 255.0 * 128 * kLength);
}

TEST_P(QuantizedTest, SumsOfTensors) {
  Random random(3);
  for (int done = 0; done < 200; ++done) {
    const Shape shape = random.Dims(4, 1, 6);
    const size_t count = random.Coin() ? 1 : 2;
    const DType y_type = std::array{kInt8, kUInt8, kFloat32}[random.Int(0, 2)];
    const bool relu = random.Coin(), blocked = random.Coin();
    std::vector<float> sums(static_cast<size_t>(shape.Count()));
    std::vector<Tensor> x, scales, zeros;
    for (size_t i = 0; i < count; ++i) {
      const DType type = std::array{kInt8, kUInt8, kFloat32}[random.Int(0, 2)];
      const auto scale = static_cast<float>(random.Real(0.01, 0.1));
      const auto zero = static_cast<float>(random.Int(0, 100));
      const bool plain = type == kFloat32;
      const Tensor t = FromValues(shape, Integers(random, shape.Count(), 0, 127), type);
      const Vector values = Values(t);
      for (size_t j = 0; j < sums.size(); ++j) {
        const auto value = static_cast<float>(values[j]);
        sums[j] += plain ? value : (value - zero) * scale;
      }
      x.push_back(blocked ? t.ToLayout(LaneLayout(shape, type, LaneTag::kNhwc)) : t);
      scales.push_back(plain ? Tensor() : Number(scale, kFloat32));
      zeros.push_back(plain ? Tensor() : Number(zero, kInt32));
    }
    const float y_scale = 0.37f, y_zero = 11;
    const bool steps = y_type != kFloat32;
    const Tensor y = QuantizedSum(x, scales, zeros, steps ? Number(y_scale, kFloat32) : Tensor(),
                                  steps ? Number(y_zero, kInt32) : Tensor(), y_type, relu);
    ASSERT_EQ(y.is_blocked(), x[0].is_blocked());
    const Vector found = Values(y);
    for (size_t j = 0; j < sums.size(); ++j) {
      const float sum = relu ? std::max(sums[j], 0.0f) : sums[j];
      ASSERT_EQ(found[j], steps ? Step(sum / y_scale, y_zero, y_type) : sum) << j;
    }
  }
}

TEST_P(QuantizedTest, RoundsHalvesToEvenAndLimits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = FromValues({8}, {0.5, 1.5, 2.5, -0.5, 1e30, -1e30, nan, 254.5});
  const Tensor y = QuantizedSum({x}, {Tensor()}, {Tensor()}, {}, {}, kUInt8);
  EXPECT_EQ(Values(y), (Vector{0, 2, 2, 0, 255, 0, 0, 254}));
}

TEST(Quantized, Errors) {
  const Tensor x = Full({1, 4, 5, 5}, 1, nullptr, kUInt8),
               w = Full({6, 4, 3, 3}, 1, nullptr, kInt8);
  const Tensor scale = Full({6}, 1), zero = Number(1, kInt32);
  const ConvHandle handle(x, {3, 3}, {1, 1}, {0, 0}, 4, 6);
  const auto conv = [&](const Tensor& image, const Tensor& filter, const Tensor& factors,
                        const Tensor& y_zero, DType type) {
    return [=] { QuantizedConv(image, filter, {}, factors, {}, y_zero, handle, type); };
  };
  const auto floats = x.AsType(kFloat32);
  ExpectError<TypeError>(conv(floats, w, scale, {}, kUInt8), "[QuantizedConv] x must be int8");
  ExpectError<TypeError>(conv(x, w.AsType(kUInt8), scale, {}, kUInt8), "W must be int8");
  ExpectError<TypeError>(conv(x, w, scale, {}, kInt64), "the result must be int8, uint8, int32");
  ExpectError<std::invalid_argument>(conv(x, w, Full({5}, 1), {}, kUInt8),
                                     "scale must have shape (6,)");
  ExpectError<std::invalid_argument>(conv(x, w, {}, {}, kUInt8), "scale is an empty tensor");
  ExpectError<std::invalid_argument>(conv(x, w, scale, {}, kInt32), "takes no scale");
  ExpectError<std::invalid_argument>(conv(x, w, scale, zero, kFloat32),
                                     "y_zero is for int8 and uint8 only");
  ExpectError<TypeError>(conv(x, w, scale, scale, kUInt8), "y_zero must be int32");
  EXPECT_ERROR(std::invalid_argument, "x must be (..., k) and W (k, n)",
               QuantizedMatMul(x, w, {}, scale, {}, {}, kUInt8));
  const Tensor rows = Full({2, 3}, 1, nullptr, kUInt8), V = Full({3, 6}, 1, nullptr, kInt8);
  EXPECT_ERROR(std::invalid_argument, "takes ReLU or GELU, not both",
               QuantizedMatMul(rows, V, {}, scale, {}, {}, kUInt8, true, true));
  EXPECT_ERROR(std::invalid_argument, "takes no bias, ReLU and GELU",
               QuantizedMatMul(rows, V, {}, {}, {}, {}, kInt32, false, true));
  EXPECT_ERROR(
      std::invalid_argument, "y_scale is for int8 and uint8 only",
      QuantizedMatMul(rows, V, {}, scale, {}, {}, kFloat32, false, true, Number(1, kFloat32)));
  EXPECT_ERROR(std::invalid_argument, "as many scales and zeros",
               QuantizedSum({x, x}, {{}}, {{}}, {}, {}, kUInt8));
  EXPECT_ERROR(std::invalid_argument, "must have shape",
               QuantizedSum({x, scale}, {{}, {}}, {{}, {}}, {}, {}, kUInt8));
}

}  // namespace
}  // namespace singa::test
