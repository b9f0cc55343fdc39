#include "singa/operation/norm.h"

#include <algorithm>
#include <cmath>

#include "core/layout/blocked_layout.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/norm/spec.h"
#include "singa/core/stats.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::ExpectError;
using test::ExpectNear;
using test::kImplementations;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Values;
using Vector = std::vector<double>;

enum class Kind { kLayer, kChannel, kGroup };

struct Case {
  Kind kind;
  Shape shape;
  int64_t axis = -1;   // kLayer
  int64_t groups = 1;  // kGroup
  DType dtype = kFloat32;
  bool centered = true;
  bool scale = true, bias = true;
  double offset = 0;
  bool channels_last = false;
  double epsilon = 1e-5;

  Shape affine() const {
    if (kind != Kind::kLayer) return {shape[1]};
    Shape result;
    for (int i = static_cast<int>(axis); i < shape.rank(); ++i) result.push_back(shape[i]);
    return result;
  }
  std::string ToString() const {
    return "kind " + std::to_string(static_cast<int>(kind)) + " " + shape.ToString() + " axis " +
           std::to_string(axis) + " groups " + std::to_string(groups) + " " + DTypeName(dtype) +
           (centered ? "" : " rms") + (scale ? " scale" : "") + (bias ? " bias" : "") +
           (channels_last ? " channels-last" : "");
  }
};

/// Where element i of x belongs: its statistic and its number in scale and bias.
struct Place {
  size_t statistic, channel;
};
Place PlaceOf(const Case& c, int64_t i) {
  if (c.kind == Kind::kLayer) {
    const int64_t length = c.affine().Count();
    return {static_cast<size_t>(i / length), static_cast<size_t>(i % length)};
  }
  const int64_t positions = c.shape.Count(2, c.shape.rank());
  const int64_t n = i / (c.shape[1] * positions), channel = i / positions % c.shape[1];
  if (c.kind == Kind::kChannel)
    return {static_cast<size_t>(n * positions + i % positions), static_cast<size_t>(channel)};
  return {static_cast<size_t>(n * c.groups + channel / (c.shape[1] / c.groups)),
          static_cast<size_t>(channel)};
}

std::vector<Tensor> Forward(const Case& c, const Tensor& x, const Tensor& scale,
                            const Tensor& bias) {
  switch (c.kind) {
    case Kind::kLayer:
      return LayerNormForward(x, scale, bias, c.axis, c.epsilon, c.centered);
    case Kind::kChannel:
      return ChannelNormForward(x, scale, bias, c.epsilon, c.centered);
    default:
      return GroupNormForward(x, c.groups, scale, bias, c.epsilon);
  }
}

std::vector<Tensor> Backward(const Case& c, const Tensor& dy, const Tensor& x, const Tensor& scale,
                             const Tensor& mean, const Tensor& inv_std, bool need_x = true,
                             bool need_scale = true, bool need_bias = true) {
  switch (c.kind) {
    case Kind::kLayer:
      return LayerNormBackward(dy, x, scale, mean, inv_std, c.axis, need_x, need_scale, need_bias);
    case Kind::kChannel:
      return ChannelNormBackward(dy, x, scale, mean, inv_std, need_x, need_scale, need_bias);
    default:
      return GroupNormBackward(dy, x, c.groups, scale, mean, inv_std, need_x, need_scale,
                               need_bias);
  }
}

Tensor ToChannelsLast(const Tensor& t) {
  return t.ToLayout(BlockedLayoutNamed("nhwc", t.shape(), t.data_type()));
}

Tensor InLayout(const Case& c, const Tensor& t) { return c.channels_last ? ToChannelsLast(t) : t; }

void CheckCase(Random& random, const Case& c) {
  SCOPED_TRACE(c.ToString());
  const DType statistics = c.dtype == kFloat64 ? kFloat64 : kFloat32;
  const Tensor x = AnyTensor(random, c.shape, c.dtype, c.offset - 2, c.offset + 2);
  const Tensor dy = AnyTensor(random, c.shape, c.dtype);
  const DType affine_type = random.Coin() ? c.dtype : statistics;
  const Tensor scale = c.scale ? AnyTensor(random, c.affine(), affine_type) : Tensor();
  const Tensor bias = c.bias ? AnyTensor(random, c.affine(), affine_type) : Tensor();
  const Vector in = Values(x), gradient = Values(dy);
  const Vector a = c.scale ? Values(scale) : Vector(), b = c.bias ? Values(bias) : Vector();
  const auto scale_at = [&](size_t i) { return a.empty() ? 1 : a[i]; };
  const auto bias_at = [&](size_t i) { return b.empty() ? 0 : b[i]; };

  const size_t size = in.size(), channels = static_cast<size_t>(c.affine().Count());
  Vector count, mean, square, terms_of_mean;
  for (size_t i = 0; i < size; ++i) {
    const Place at = PlaceOf(c, static_cast<int64_t>(i));
    if (at.statistic >= count.size()) {
      count.resize(at.statistic + 1);
      mean.resize(at.statistic + 1);
      square.resize(at.statistic + 1);
      terms_of_mean.resize(at.statistic + 1);
    }
    ++count[at.statistic];
    mean[at.statistic] += c.centered ? in[i] : 0;
    terms_of_mean[at.statistic] += c.centered ? std::abs(in[i]) : 0;
  }
  for (size_t s = 0; s < mean.size(); ++s) {
    mean[s] /= count[s];
    terms_of_mean[s] /= count[s];
  }
  for (size_t i = 0; i < size; ++i) {
    const size_t s = PlaceOf(c, static_cast<int64_t>(i)).statistic;
    square[s] += (in[i] - mean[s]) * (in[i] - mean[s]) / count[s];
  }
  // Errors: a value is known to eps, a sum of n terms to sqrt(n) · eps of them.
  const double eps = Epsilon(statistics);
  const double longest = count.empty() ? 1 : *std::max_element(count.begin(), count.end());
  const double bound = 4 * eps * (1 + std::sqrt(longest));
  Vector inv_std(mean.size()), relative(mean.size());
  for (size_t s = 0; s < mean.size(); ++s) {
    inv_std[s] = 1 / std::sqrt(square[s] + c.epsilon);
    const double shift = std::abs(mean[s]) * bound * inv_std[s];
    relative[s] = bound + shift * shift;  // of inv_std
  }
  Vector y(size), y_tolerance(size), xhat(size), xhat_tolerance(size);
  for (size_t i = 0; i < size; ++i) {
    const auto [s, k] = PlaceOf(c, static_cast<int64_t>(i));
    xhat[i] = (in[i] - mean[s]) * inv_std[s];
    xhat_tolerance[i] =
        relative[s] * std::abs(xhat[i]) + bound * (std::abs(in[i]) + terms_of_mean[s]) * inv_std[s];
    y[i] = xhat[i] * scale_at(k) + bias_at(k);
    y_tolerance[i] = xhat_tolerance[i] * std::abs(scale_at(k)) + 2 * eps * std::abs(bias_at(k));
  }
  Vector sum(mean.size()), product(mean.size()), magnitude(mean.size());
  Vector dscale(channels), dbias(channels), dscale_tolerance(channels), dbias_tolerance(channels);
  const double rows = channels ? static_cast<double>(size) / static_cast<double>(channels) : 0;
  const double sum_bound = 4 * eps * (1 + std::sqrt(rows));
  for (size_t i = 0; i < size; ++i) {
    const auto [s, k] = PlaceOf(c, static_cast<int64_t>(i));
    const double g = gradient[i] * scale_at(k);
    if (c.centered) sum[s] += g / count[s];
    product[s] += g * xhat[i] / count[s];
    magnitude[s] += std::abs(g) * (1 + std::abs(xhat[i]) + xhat_tolerance[i] / bound) / count[s];
    dscale[k] += gradient[i] * xhat[i];
    dscale_tolerance[k] +=
        std::abs(gradient[i]) * (sum_bound * std::abs(xhat[i]) + xhat_tolerance[i]);
    dbias[k] += gradient[i];
    dbias_tolerance[k] += sum_bound * std::abs(gradient[i]);
  }
  Vector dx(size), dx_tolerance(size);
  for (size_t i = 0; i < size; ++i) {
    const auto [s, k] = PlaceOf(c, static_cast<int64_t>(i));
    const double g = gradient[i] * scale_at(k);
    dx[i] = inv_std[s] * (g - sum[s] - xhat[i] * product[s]);
    const double terms =
        std::abs(g) + magnitude[s] * (1 + std::abs(xhat[i]) + xhat_tolerance[i] / bound);
    dx_tolerance[i] = inv_std[s] * terms * (2 * bound + relative[s]);
  }

  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = Forward(c, InLayout(c, x), scale, bias);
    ASSERT_EQ(out.size(), 3u);
    EXPECT_EQ(out[0].data_type(), c.dtype);
    EXPECT_EQ(out[0].shape(), c.shape);
    EXPECT_EQ(out[1].empty(), !c.centered);
    ExpectNear(out[0], y, y_tolerance, "y");
    const auto got = Backward(c, InLayout(c, dy), InLayout(c, x), scale, out[1], out[2]);
    EXPECT_EQ(got[0].shape(), c.shape);
    EXPECT_EQ(got[1].shape(), c.affine());
    EXPECT_EQ(got[1].data_type(), c.scale ? affine_type : statistics);
    ExpectNear(got[0], dx, dx_tolerance, "dx");
    ExpectNear(got[1], dscale, dscale_tolerance, "dscale");
    ExpectNear(got[2], dbias, dbias_tolerance, "dbias");
    // One gradient alone has the same bits.
    for (const int only : {0, 1, 2}) {
      const auto alone = Backward(c, InLayout(c, dy), InLayout(c, x), scale, out[1], out[2],
                                  only == 0, only == 1, only == 2);
      for (const int i : {0, 1, 2}) {
        ASSERT_EQ(alone[i].empty(), i != only);
        if (i == only) {
          EXPECT_EQ(Values(alone[i]), Values(got[i])) << i;
        }
      }
    }
  }
}

TEST(Norm, MatchesTheDefinitionOverRandomGeometries) {
  Random random(91);
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  for (int i = 0; i < 400 && !testing::Test::HasFailure(); ++i) {
    Case c{.kind = static_cast<Kind>(random.Int(0, 2)), .shape = {}};
    c.shape = random.Dims(static_cast<int>(random.Int(2, 5)), 1, 6);
    c.shape[1] = random.Int(1, 4) * random.Int(1, 20);
    c.axis = random.Int(0, c.shape.rank() - 1);
    if (c.kind == Kind::kGroup) do
        c.groups = random.Int(1, c.shape[1]);
      while (c.shape[1] % c.groups != 0);
    c.centered = c.kind == Kind::kGroup || random.Coin();
    c.dtype = kTypes[random.Int(0, 5)];
    c.scale = random.Int(0, 3) > 0;
    c.bias = random.Int(0, 3) > 0;
    c.offset = random.Int(0, 3) == 0 ? 50 : 0;
    c.channels_last = c.kind != Kind::kLayer && c.shape.rank() == 4 &&
                      (c.dtype == kFloat32 || c.dtype == kBFloat16) && random.Coin();
    CheckCase(random, c);
  }
}

TEST(Norm, MatchesTheDefinitionForLargeImages) {
  Random random(92);
  CheckCase(random, {.kind = Kind::kLayer, .shape = {65, 4, 192}, .axis = 2});
  CheckCase(random, {.kind = Kind::kLayer, .shape = {3, 5000}, .axis = 1, .offset = 20});
  CheckCase(random, {.kind = Kind::kLayer, .shape = {400, 768}, .axis = 1, .dtype = kBFloat16});
  CheckCase(random, {.kind = Kind::kChannel, .shape = {2, 96, 28, 28}, .channels_last = true});
  CheckCase(random, {.kind = Kind::kChannel, .shape = {2, 96, 14, 14}});
  for (const bool channels_last : {false, true}) {
    CheckCase(random, {.kind = Kind::kGroup,
                       .shape = {2, 64, 33, 31},
                       .groups = 8,
                       .offset = 20,
                       .channels_last = channels_last});
    CheckCase(random, {.kind = Kind::kGroup,
                       .shape = {1, 600, 9, 9},
                       .groups = 600,
                       .dtype = kBFloat16,
                       .channels_last = channels_last});
  }
}

TEST(Norm, ChannelsLastImagesAreNotCopied) {
  Random random(93);
  const Tensor x = ToChannelsLast(RandomTensor(random, {2, 32, 5, 7}));
  ASSERT_TRUE(x.layout());
  const Tensor scale = RandomTensor(random, {32});
  for (const bool group : {false, true}) {
    const uint64_t before = GetReorderStats().count;
    const auto out =
        group ? GroupNormForward(x, 4, scale, Tensor()) : ChannelNormForward(x, scale, Tensor());
    EXPECT_TRUE(SameLayout(out[0].layout(), x.layout()));
    const auto back = group ? GroupNormBackward(x, x, 4, scale, out[1], out[2])
                            : ChannelNormBackward(x, x, scale, out[1], out[2]);
    EXPECT_TRUE(SameLayout(back[0].layout(), x.layout()));
    EXPECT_EQ(GetReorderStats().count, before);
  }
}

TEST(Norm, EmptyTensors) {
  for (const Shape& shape : {Shape{0, 3}, Shape{2, 0}}) {
    const auto out = LayerNormForward(Tensor(shape), Tensor(), Tensor());
    EXPECT_EQ(out[0].shape(), shape);
    const auto back = LayerNormBackward(Tensor(shape), Tensor(shape), Tensor(), out[1], out[2]);
    EXPECT_EQ(back[0].shape(), shape);
    EXPECT_EQ(Values(back[1]), Vector(static_cast<size_t>(shape[1])));
  }
  const auto out = GroupNormForward(Tensor({2, 4, 0, 3}), 2, Tensor(), Tensor());
  EXPECT_EQ(out[0].shape(), (Shape{2, 4, 0, 3}));
}

TEST(Norm, NanStaysWithItsStatistic) {
  Random random(94);
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      Vector values(3 * 40);
      for (double& v : values) v = random.Real();
      values[45] = bad;
      const Vector y =
          Values(LayerNormForward(test::FromValues({3, 40}, values), Tensor(), Tensor())[0]);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
    }
  }
}

TEST(Norm, Errors) {
  const Tensor x({2, 6, 4});
  const auto layer = [&](const Tensor& scale, int64_t axis = -1, double epsilon = 1e-5) {
    return [=] { LayerNormForward(x, scale, Tensor(), axis, epsilon); };
  };
  ExpectError<std::invalid_argument>(layer(Tensor({6})),
                                     "[LayerNorm] scale must have shape (4,), got");
  ExpectError<std::invalid_argument>(layer(Tensor({4}), 1),
                                     "[LayerNorm] scale must have shape (6, 4), got");
  ExpectError<std::invalid_argument>(layer(Tensor(), -1, -1.0),
                                     "[LayerNorm] epsilon must be finite and not negative");
  ExpectError<TypeError>(layer(Tensor(Shape{4}, nullptr, kFloat64)),
                         "[LayerNorm] scale must be float32 or of x's type");
  ExpectError<TypeError>([] { LayerNormForward(Tensor({2}, nullptr, kInt32), Tensor(), Tensor()); },
                         "[LayerNorm] x must be of a float type");
  ExpectError<std::invalid_argument>([&] { GroupNormForward(x, 4, Tensor(), Tensor()); },
                                     "[GroupNorm] groups must divide the 6 channels of x, got 4");
  ExpectError<std::invalid_argument>([&] { GroupNormForward(x, 0, Tensor(), Tensor()); },
                                     "[GroupNorm] groups must divide");
  ExpectError<std::invalid_argument>([] { ChannelNormForward(Tensor({3}), Tensor(), Tensor()); },
                                     "[ChannelNorm] x must have shape (N, C, ...), got");
  const auto out = GroupNormForward(x, 3, Tensor(), Tensor());
  ExpectError<std::invalid_argument>([&] { GroupNormBackward(x, x, 2, Tensor(), out[1], out[2]); },
                                     "[GroupNorm] mean must have shape (4,), got");
  ExpectError<std::invalid_argument>(
      [&] {
        GroupNormBackward(Tensor({2, 6}), x, 3, Tensor(), out[1], out[2]);
      },
      "[GroupNorm] dy must have the shape of x");
}

TEST(Norm, EqualValuesAreZero) {
  for (const double value : {0.5, 1000.3, 100000.3, 1e7})
    for (const int64_t size : {3, 7, 28, 40}) {
      const Shape shape = {2, 3, size, size};
      for (const bool channels_last : {false, true})
        for (const DType dtype : {kFloat32, kFloat64, kBFloat16}) {
          Tensor x = Full(shape, value, nullptr, dtype);
          if (channels_last && dtype != kFloat64)
            x = x.ToLayout(LaneLayout(shape, dtype, LaneTag::kNhwc));
          for (const Tensor& y :
               {GroupNormForward(x, 1, Tensor(), Tensor())[0],
                GroupNormForward(x, 3, Tensor(), Tensor())[0],
                ChannelNormForward(x, Tensor(), Tensor())[0],
                LayerNormForward(x.Reshape({6, size * size}), Tensor(), Tensor())[0]})
            for (const double zero : Values(y))
              ASSERT_NEAR(zero, 0, dtype == kFloat64 ? 1e-4 : 0) << value << " " << size;
        }
    }
}

TEST(Norm, OpcheckSeesTheErrorOfASumInFloat32) {
  constexpr int64_t kCount = 784;
  const Tensor x = Full({1, kCount}, 1000.3, nullptr, kFloat32);
  float sum = 0;
  for (int64_t i = 0; i < kCount; ++i) sum += 1000.3f;
  const double error = std::abs(sum / kCount - 1000.3f) / std::sqrt(1e-5);
  ASSERT_GT(error, 0.05);  // y would be as far from 0
  NormForwardSpec spec;
  spec.shape = {1, kCount, 1};
  spec.has_scale = spec.has_bias = false;
  const Tensor magnitude = spec.Magnitudes({x, Tensor(), Tensor()})[0];
  const double allowed = 16 * 0x1p-23 * std::sqrt(kCount) * Values(magnitude)[0];
  EXPECT_LT(allowed, 2.0 / 3 * error);
}

}  // namespace
}  // namespace singa
