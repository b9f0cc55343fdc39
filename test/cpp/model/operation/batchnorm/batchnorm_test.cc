#include "singa/operation/batchnorm.h"

#include "model/operation/batchnorm/batchnorm_naive.h"
#include "singa/core/device.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

// If nothing was added, backward recomputes the signs of y from x. Errors are most likely near
// zero, so x takes few values, and the zero of each channel is next to one of them.
TEST(BatchNorm, BackwardFindsTheSignsThatForwardFound) {
  Random random(49);
  const Shape shape{3, 37, 6, 5}, channels{37};
  Vector values(static_cast<size_t>(shape.Count()));
  for (double& v : values) v = static_cast<double>(random.Int(-4, 4)) * 0.3;
  const Tensor x = FromValues(shape, values), mean = RandomTensor(random, channels);
  const Tensor var = RandomTensor(random, channels, kFloat32, 0.5, 2);
  const Tensor scale = RandomTensor(random, channels, kFloat32, 0.5, 2);
  const BatchNormHandle handle(0.1, x);
  Vector zero(37);
  for (size_t c = 0; c < zero.size(); ++c) {
    const double at = 0.3 * static_cast<double>(random.Int(-4, 4)) - Values(mean)[c];
    zero[c] = -at * Values(scale)[c] / std::sqrt(Values(var)[c] + handle.epsilon);
  }
  const Tensor bias = FromValues(channels, zero), dy = Full(shape, 1);
  int close = 0;
  for (Preference forward : kImplementations) {
    SetPreference(forward);
    const Vector y = Values(BatchNormForwardInference(handle, x, scale, bias, mean, var, {}, true));
    for (double v : y) close += v > 0 && v < 1e-6;
    for (Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const auto d =
          BatchNormBackwardInference(handle, dy, x, scale, mean, var, true, true, true, bias);
      const Vector dx = Values(d[0]);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_EQ(dx[i] != 0, y[i] > 0) << i << " " << y[i];
    }
  }
  SetPreference(Preference::kFastest);
  EXPECT_GT(close, 50) << "the test does not test what it says";
}

TEST(BatchNorm, GradientOfTheResidualWithoutReluIsDyItself) {
  Random random(50);
  const Tensor x = RandomTensor(random, {4, 3, 2, 2}), dy = RandomTensor(random, {4, 3, 2, 2});
  const BatchNormHandle handle(0.1, x);
  const auto out = BatchNormForwardTraining(handle, x, {}, {}, {}, {}, dy);
  const auto d =
      BatchNormBackward(handle, dy, x, {}, out[1], out[2], true, true, false, {}, {}, true);
  ASSERT_EQ(d.size(), 4u);
  EXPECT_EQ(d[3].block(), dy.block());
}

// For 1000 ± 0.01 in float32, sums of squares would lose the variance completely.
TEST(BatchNorm, KeepsTheVarianceOfDataFarFromZero) {
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    Random random(44);
    const Tensor x = RandomTensor(random, {16, 16, 16, 16}, kFloat32, 999.99, 1000.01);
    const BatchNormHandle handle(0.1, x, 1e-12);
    const auto out = BatchNormForwardTraining(handle, x, {}, {}, {}, {});
    const Vector one(16, 1.0), zero(16, 0.0);
    const Expected want = NaiveForward(x.shape(), Values(x), one, zero, 1e-12, 0x1p-52);
    const Vector var = Values(out[2]), y = Values(out[0]);
    const double mean_error = 1000 * 0x1p-23;  // resolution of float32 at the mean
    for (size_t c = 0; c < var.size(); ++c)
      EXPECT_NEAR(var[c], want.var[c], mean_error * mean_error + 1e-5 * want.var[c]);
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], want.y[i], mean_error / std::sqrt(want.var[0]) * 1.1) << i;
  }
}

TEST(BatchNorm, BackwardDoesWhatIsAsked) {
  Random random(45);
  const Tensor x = RandomTensor(random, {4, 3, 5, 5});
  const Tensor dy = RandomTensor(random, {4, 3, 5, 5});
  const Tensor scale = RandomTensor(random, {3});
  const BatchNormHandle handle(0.1, x);
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = BatchNormForwardTraining(handle, x, scale, {}, {}, {});
    for (auto* function : {BatchNormBackward, BatchNormBackwardInference}) {
      const auto backward = [&](bool need_x, bool need_scale) {
        return function(handle, dy, x, scale, out[1], out[2], need_x, need_scale, false, {}, {},
                        false);
      };
      const auto all = backward(true, true), only_x = backward(true, false);
      const auto only_scale = backward(false, true), none = backward(false, false);
      EXPECT_EQ(Values(only_x[0]), Values(all[0]));
      EXPECT_TRUE(only_x[1].empty() && only_x[2].empty());
      EXPECT_TRUE(only_scale[0].empty());
      EXPECT_EQ(Values(only_scale[1]), Values(all[1]));
      EXPECT_EQ(Values(only_scale[2]), Values(all[2]));
      EXPECT_TRUE(none[0].empty() && none[1].empty() && none[2].empty());
    }
  }
}

TEST(BatchNorm, TakesHalfPrecisionParameters) {
  Random random(46);
  const Tensor x = RandomTensor(random, {4, 3, 2, 2}, kBFloat16);
  const Tensor scale = RandomTensor(random, {3}, kBFloat16, 0.5, 2);
  const Tensor bias = RandomTensor(random, {3}, kBFloat16);
  const BatchNormHandle handle(0.1, x);
  const auto half = BatchNormForwardTraining(handle, x, scale, bias, {}, {});
  const auto full =
      BatchNormForwardTraining(handle, x, scale.AsType(kFloat32), bias.AsType(kFloat32), {}, {});
  EXPECT_EQ(Values(half[0]), Values(full[0]));
  const auto d = BatchNormBackward(handle, x, x, scale, half[1], half[2]);
  EXPECT_EQ(d[1].data_type(), kBFloat16);
  EXPECT_EQ(d[2].data_type(), kBFloat16);
}

TEST(BatchNorm, SingleValuePerChannel) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const Tensor x = FromValues({1, 2}, {3, -4});
    const BatchNormHandle handle(0.5, x);
    const Tensor mean = Full({2}, 1), var = Full({2}, 1);
    const auto out = BatchNormForwardTraining(handle, x, {}, Full({2}, 0.25), mean, var);
    EXPECT_EQ(Values(out[0]), Vector({0.25, 0.25}));
    EXPECT_EQ(Values(mean), Vector({2, -1.5}));
    EXPECT_EQ(Values(var), Vector({0.5, 0.5}));
    EXPECT_EQ(Values(BatchNormBackward(handle, x, x, {}, out[1], out[2])[0]), Vector({0, 0}));
  }
}

TEST(BatchNorm, EmptyBatchLeavesTheRunningStatistics) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const Tensor x(Shape{0, 2, 3, 3});
    const BatchNormHandle handle(0.5, x);
    const Tensor mean = Full({2}, 1), var = Full({2}, 2), scale = Full({2}, 1);
    const auto out = BatchNormForwardTraining(handle, x, scale, scale, mean, var);
    EXPECT_EQ(out[0].shape(), x.shape());
    EXPECT_EQ(Values(mean), Vector({1, 1}));
    EXPECT_EQ(Values(var), Vector({2, 2}));
    const auto d = BatchNormBackward(handle, x, x, scale, out[1], out[2]);
    EXPECT_EQ(d[0].shape(), x.shape());
    EXPECT_EQ(Values(d[1]), Vector({0, 0}));
    EXPECT_EQ(Values(d[2]), Vector({0, 0}));
    EXPECT_EQ(BatchNormForwardInference(handle, x, scale, scale, mean, var).shape(), x.shape());
  }
}

TEST(BatchNorm, KeepsTheShape1C11OfItsParameters) {
  Random random(11);
  const Tensor x = RandomTensor(random, {2, 3, 4, 4}), dy = RandomTensor(random, {2, 3, 4, 4});
  const Tensor scale = RandomTensor(random, {3}), bias = RandomTensor(random, {3});
  const BatchNormHandle handle(0.2, x);
  std::vector<std::vector<Vector>> results;
  for (const Shape& shape : {Shape{3}, Shape{1, 3, 1, 1}}) {
    const Tensor s = scale.Reshape(shape), b = bias.Reshape(shape);
    const Tensor mean = Full(shape, 1), var = Full(shape, 2);
    const auto out = BatchNormForwardTraining(handle, x, s, b, mean, var);
    const auto d = BatchNormBackward(handle, dy, x, s, out[1], out[2], true, true, true, b);
    const Tensor y = BatchNormForwardInference(handle, x, s, b, mean, var);
    const auto frozen = BatchNormBackwardInference(handle, dy, x, s, mean, var);
    std::vector<Vector>& all = results.emplace_back();
    for (const Tensor& t : {out[1], out[2], d[1], d[2], frozen[1], frozen[2], mean, var}) {
      EXPECT_EQ(t.shape(), shape);
      all.push_back(Values(t));
    }
    for (const Tensor& t : {out[0], d[0], y, frozen[0]}) all.push_back(Values(t));
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST(BatchNorm, ForwardMarksTheRunningTensorsAsChanged) {
  const Tensor x = Full({2, 2}, 1), mean = Full({2}, 1), var = Full({2}, 1);
  const uint64_t mean_version = mean.version(), var_version = var.version();
  BatchNormForwardTraining(BatchNormHandle(0.1, x), x, {}, {}, mean, var);
  EXPECT_GT(mean.version(), mean_version);
  EXPECT_GT(var.version(), var_version);
}

TEST(BatchNorm, DoesNotDependOnTheNumberOfThreads) {
  Random random(47);
  const Tensor x = RandomTensor(random, {8, 16, 32, 32});
  const BatchNormHandle handle(0.1, x);
  const PreferenceScope scope(Preference::kReference);
  SameOnThreads({2, 3},
                [&] { return Values(BatchNormForwardTraining(handle, x, {}, {}, {}, {})[0]); });
}

}  // namespace
}  // namespace singa::test
