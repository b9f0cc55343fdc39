#include "singa/operation/pooling.h"

#include "core/layout/channel_lanes.h"
#include "model/dispatch/kernel.h"
#include "model/operation/conv/conv_naive.h"
#include "model/operation/pooling/spec.h"
#include "singa/core/device.h"
#include "support.h"

namespace singa::test {
namespace {

TEST(Pooling, SavedOfOneImplementationServesTheOther) {
  Random random(63);
  const Tensor x = RandomTensor(random, {2, 16, 9, 9});
  const PoolingHandle handle(x, {3, 3}, {2, 2}, {1, 1});
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

TEST(Pooling, MaximaOfBytesAreThoseOfFloats) {
  Random random(66);
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    for (int done = 0; done < 60; ++done) {
      const DType type = random.Coin() ? kInt8 : kUInt8;
      const int64_t low = type == kInt8 ? -128 : 0;
      Shape shape = {random.Int(1, 2), random.Int(1, 70)};
      const int axes = static_cast<int>(random.Int(1, 3));
      for (int i = 0; i < axes; ++i) shape.push_back(random.Int(3, 9));
      Vector values(static_cast<size_t>(shape.Count()));
      for (double& v : values) v = static_cast<double>(random.Int(low, low + 255));
      Tensor x = FromValues(shape, values, type);
      const PoolingHandle handle(x, Numbers(random, axes, 2, 3), Numbers(random, axes, 1, 2),
                                 Numbers(random, axes, 0, 1), true, random.Coin());
      if (random.Coin()) x = x.ToLayout(LaneLayout(shape, type, LaneTag::kNhwc));
      SCOPED_TRACE(handle.recorder.ToString());
      const auto out = PoolingForward(handle, x);
      ASSERT_EQ(out[0].data_type(), type);
      ASSERT_TRUE(out[1].empty());
      ASSERT_EQ(Values(out[0]), Values(PoolingForward(handle, x.AsType(kFloat32))[0]));
    }
  }
}

TEST(Pooling, TheMaximumOfNoBytesIsTheLeastNumber) {
  const Tensor x = Full({1, 1, 1, 1}, 7, nullptr, kInt8);  // taps at -1 and 1
  const PoolingHandle handle(x, {1, 2}, {1, 1}, {0, 1}, true, false, false, {1, 2});
  EXPECT_EQ(Values(PoolingForward(handle, x)[0]), Vector({-128}));
}

TEST(Pooling, ChannelsLastBytesHaveAKernel) {
  const Tensor x = Full({2, 16, 9, 9}, 1, nullptr, kUInt8);
  const PoolingHandle handle(x, {3, 3}, {2, 2}, {1, 1});
  const LayoutPtr layout = LaneLayout(x.shape(), kUInt8, LaneTag::kNhwc);
  const PoolingForwardSpec spec{{handle.recorder, PoolMode::kMax, kUInt8, layout}, false};
  const Kernel* kernel = FindKernel<PoolingForwardSpec>("onednn");
  if (!kernel) GTEST_SKIP() << "this build has no oneDNN";
  const PlanOrReason plan = kernel->Make(spec);
  ASSERT_TRUE(plan) << plan.reason();
  EXPECT_TRUE(SameLayout(plan.plan()->output_layout(0),
                         LaneLayout(handle.recorder.output_shape(), kUInt8, LaneTag::kNhwc)));
}

TEST(Pooling, MeansOfBytesAreRefused) {
  const Tensor x = Full({1, 1, 4, 4}, 1, nullptr, kUInt8);
  EXPECT_ERROR(TypeError, "x must be of a float type",
               PoolingHandle(x, {2, 2}, {2, 2}, {0, 0}, false));
  const PoolingHandle mean(Full({1, 1, 4, 4}, 1), {2, 2}, {2, 2}, {0, 0}, false);
  EXPECT_ERROR(TypeError, "x must be of a float type", PoolingForward(mean, x));
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

TEST(Pooling, RefusesAModeThatIsNone) {
  const Tensor x = Full({1, 1, 4, 4}, 1);
  PoolingHandle handle(x, {2, 2}, {2, 2}, {0, 0});
  handle.mode = static_cast<PoolMode>(9);
  EXPECT_THROW(PoolingForward(handle, x), std::invalid_argument);
  EXPECT_THROW(PoolingBackward(handle, Full({1, 1, 2, 2}, 1), x, {}, {}), std::invalid_argument);
}

}  // namespace
}  // namespace singa::test
