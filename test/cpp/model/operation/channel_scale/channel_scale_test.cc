// Products of blocked and channels-last images with one number per channel.

#include "model/operation/channel_scale/channel_scale.h"

#include "backend/cpu/lane_layouts.h"
#include "singa/operation/elementwise.h"

namespace singa::test {
namespace {

/// On a CPU; elsewhere a product broadcasts.
bool OnCpu() { return DefaultDevice()->kind() == DeviceKind::kCpu; }

TEST(ChannelScale, IsTheProductOfPlainImages) {
  if (!OnCpu()) GTEST_SKIP() << "a product of the CPU";
  Random random(1);
  for (int i = 0; i < 120 && !HasFailure(); ++i) {
    const LaneTag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 2) ? kFloat32 : kBFloat16;
    const int64_t images = random.Int(1, 4);
    const int64_t channels = random.Int(0, 9) ? random.Int(2, 70) : random.Int(500, 1100);
    const Shape shape{images, channels, random.Int(1, 20), random.Int(2, 20)};
    const Shape scales[] = {
        {images, channels, 1, 1}, {1, channels, 1, 1}, {channels, 1, 1}, {images, 1, 1, 1}};
    const Shape scale = scales[random.Int(0, 3)];
    SCOPED_TRACE(shape.ToString() + scale.ToString() + DTypeName(dtype));
    const Tensor x = RandomTensor(random, shape, dtype), s = RandomTensor(random, scale, dtype),
                 dy = RandomTensor(random, shape, dtype);
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    const bool first = random.Coin();
    for (const Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const Tensor y = first ? Binary(BinaryOp::kMul, xb, s) : Binary(BinaryOp::kMul, s, xb);
      EXPECT_EQ(Values(y), Values(Binary(BinaryOp::kMul, x, s)));
      const auto gradients = [&](const Tensor& dy, const Tensor& x, bool need_x, bool need_s) {
        auto found = first ? BinaryBackward(BinaryOp::kMul, dy, x, s, {}, need_x, need_s)
                           : BinaryBackward(BinaryOp::kMul, dy, s, x, {}, need_s, need_x);
        if (!first) std::swap(found[0], found[1]);
        return found;
      };
      const auto want = gradients(dy, x, true, true);
      // The layout comes from x or from dy.
      const auto got = gradients(dyb, random.Coin() ? xb : x, true, true);
      EXPECT_EQ(Values(got[0]), Values(want[0]));
      EXPECT_EQ(got[1].shape(), scale);
      ExpectSame(got[1], want[1], 64 * 0x1p-23, "ds");
      const auto only_x = gradients(dyb, xb, true, false), only_s = gradients(dyb, xb, false, true);
      EXPECT_EQ(Values(only_x[0]), Values(want[0]));
      EXPECT_TRUE(only_x[1].empty() && only_s[0].empty());
      EXPECT_EQ(Values(only_s[1]), Values(got[1]));
      if (preference != Preference::kFastest) continue;
      ExpectIn(y, tag, "y");
      // Gradients of one number per image are summed before they are rounded.
      if (dtype == kFloat32 || scale != scales[3]) ExpectIn(got[0], tag, "dx");
      ExpectIn(only_x[0], tag, "dx alone");
    }
  }
}

TEST(ChannelScale, RowsOfFeaturesAreImages) {
  if (!OnCpu()) GTEST_SKIP() << "a product of the CPU";
  Random random(4);
  const Tensor rows = RandomTensor(random, {2, 5, 7, 24});
  const Tensor x = rows.Transpose({0, 3, 1, 2}), dy = RandomTensor(random, x.shape());
  for (const Shape& shape : {Shape{24, 1, 1}, Shape{2, 1, 1, 1}}) {
    const Tensor s = RandomTensor(random, shape);
    const Tensor y = Binary(BinaryOp::kMul, x, s);
    ExpectIn(y, LaneTag::kNhwc, "y");
    EXPECT_EQ(Values(y), Values(Binary(BinaryOp::kMul, x.Contiguous(), s)));
    const auto want = BinaryBackward(BinaryOp::kMul, dy, x.Contiguous(), s, {}, true, true);
    const auto got = BinaryBackward(BinaryOp::kMul, In(dy, LaneTag::kNhwc), x, s, {}, true, true);
    ExpectIn(got[0], LaneTag::kNhwc, "dx");
    EXPECT_EQ(Values(got[0]), Values(want[0]));
    ExpectSame(got[1], want[1], 64 * 0x1p-23, "ds");
    // There are no layouts of other types.
    for (const DType dtype : {kFloat64, kInt32}) {
      const Tensor other = rows.AsType(dtype).Transpose({0, 3, 1, 2});
      EXPECT_FALSE(Binary(BinaryOp::kMul, other, s.AsType(dtype)).is_blocked());
    }
  }
}

TEST(ChannelScale, LeavesOtherProductsAlone) {
  if (!OnCpu()) GTEST_SKIP() << "a product of the CPU";
  Random random(2);
  const Tensor x = In(RandomTensor(random, {2, 16, 4, 4}), LaneTag::kNChw16c);
  const auto taken = [&](const Shape& s, DType dtype = kFloat32) {
    return ScaleChannels(x, RandomTensor(random, s, dtype)).has_value();
  };
  EXPECT_TRUE(taken({2, 16, 1, 1}));
  EXPECT_TRUE(taken({16, 1, 1}));
  EXPECT_FALSE(taken({2, 16, 4, 4}));
  EXPECT_TRUE(taken({2, 1, 1, 1}));
  EXPECT_FALSE(taken({1, 1, 1, 1}));
  EXPECT_FALSE(taken({16, 4, 4}));
  EXPECT_FALSE(taken({1}));
  EXPECT_FALSE(taken({2, 16, 1, 1}, kBFloat16));
  EXPECT_FALSE(ScaleChannels(x.Plain().Clone(), RandomTensor(random, {2, 16, 1, 1})));
}

/// NaN and infinity stay in their channel, and the padding of blocks stays zero.
TEST(ChannelScale, NumbersThatAreNoneStayInTheirChannel) {
  if (!OnCpu()) GTEST_SKIP() << "a product of the CPU";
  Random random(3);
  const Shape shape{2, 19, 3, 5};
  Vector factors(38, 1);
  factors[4] = std::nan("");
  factors[18] = kInf;
  for (const LaneTag tag : kTags) {
    const Tensor x = In(RandomTensor(random, shape, kFloat32, 1, 2), tag);
    const Tensor s = FromValues({2, 19, 1, 1}, factors);
    const Tensor y = Binary(BinaryOp::kMul, x, s);
    ExpectIn(y, tag, "y");
    const Vector got = Values(y), from = Values(x);
    for (size_t i = 0; i < got.size(); ++i) {
      const size_t channel = i / 15;
      EXPECT_TRUE(channel == 4    ? std::isnan(got[i])
                  : channel == 18 ? got[i] == kInf
                                  : got[i] == from[i])
          << i;
    }
  }
}

}  // namespace
}  // namespace singa::test
