#include "singa/operation/norm.h"

#include <algorithm>

#include "core/layout/blocked_layout.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/norm/spec.h"
#include "singa/core/stats.h"
#include "support.h"

namespace singa::test {
namespace {

Tensor ToChannelsLast(const Tensor& t) {
  return t.ToLayout(BlockedLayoutNamed("nhwc", t.shape(), t.data_type()));
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
  for (const double bad : {kNan, kInf}) {
    for (Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      Vector values(3 * 40);
      for (double& v : values) v = random.Real();
      values[45] = bad;
      const Vector y = Values(LayerNormForward(FromValues({3, 40}, values), Tensor(), Tensor())[0]);
      for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 40 == 1) << i;
    }
  }
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
}  // namespace singa::test
