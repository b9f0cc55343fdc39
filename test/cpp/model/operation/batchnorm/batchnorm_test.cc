#include "singa/operation/batchnorm.h"

#include "model/operation/batchnorm/batchnorm_naive.h"
#include "singa/core/device.h"
#include "singa/core/threads.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::Expected;
using test::ExpectError;
using test::ExpectNear;
using test::FromValues;
using test::kImplementations;
using test::Layout;
using test::NaiveBackward;
using test::NaiveForward;
using test::PreferenceScope;
using test::Random;
using test::RandomTensor;
using test::Statistics;
using test::Values;
using test::Vector;

struct Case {
  Shape shape;
  DType dtype = kFloat32;
  double mean = 0, deviation = 1;
  bool affine = true, views = false;
};

Case RandomCase(Random& random) {
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  Case c;
  c.shape = {random.Int(1, 6), random.Int(1, 35)};
  for (int64_t axes = random.Int(0, 2); axes > 0; --axes) c.shape.push_back(random.Int(1, 9));
  if (c.shape.rank() == 2) c.shape[0] = random.Int(1, 40);
  c.dtype = kTypes[random.Int(0, 5)];
  c.mean = random.Real(-2, 2);
  c.affine = random.Int(0, 3) > 0;
  c.views = random.Coin();
  return c;
}

Tensor Input(Random& random, const Case& c) {
  const double low = c.mean - 1.7 * c.deviation, high = c.mean + 1.7 * c.deviation;
  return c.views ? AnyTensor(random, c.shape, c.dtype, low, high)
                 : RandomTensor(random, c.shape, c.dtype, low, high);
}

void CheckCase(Random& random, const Case& c) {
  SCOPED_TRACE(c.shape.ToString() + " " + DTypeName(c.dtype) + (c.affine ? " affine" : ""));
  const DType statistics = Statistics(c.dtype);
  const double eps = Epsilon(statistics);
  const Shape channels{c.shape[1]};
  const Tensor x = Input(random, c);
  const Tensor dy = AnyTensor(random, c.shape, c.dtype);
  Tensor scale, bias;
  Vector scale_values(c.shape[1], 1.0), bias_values(c.shape[1], 0.0);
  if (c.affine) {
    scale = RandomTensor(random, channels, statistics, 0.5, 2);
    bias = RandomTensor(random, channels, statistics);
    scale_values = Values(scale);
    bias_values = Values(bias);
  }
  const Tensor running_mean = RandomTensor(random, channels, statistics);
  const Tensor running_var = RandomTensor(random, channels, statistics, 0.5, 2);
  const double factor = random.Real(0, 1);
  const BatchNormHandle handle(factor, x, random.Coin() ? 1e-5 : 1e-2);

  const Expected want =
      NaiveForward(c.shape, Values(x), scale_values, bias_values, handle.epsilon, eps);
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const Tensor new_mean = running_mean.Clone(), new_var = running_var.Clone();
    const auto out = BatchNormForwardTraining(handle, x, scale, bias, new_mean, new_var);
    ASSERT_EQ(out.size(), 3u);
    EXPECT_EQ(out[0].data_type(), c.dtype);
    EXPECT_EQ(out[1].data_type(), statistics);
    ExpectNear(out[0], want.y, want.y_tolerance, "y");
    ExpectNear(out[1], want.mean, want.mean_tolerance, "mean");
    ExpectNear(out[2], want.var, want.var_tolerance, "var");

    // The running statistics follow exactly from the returned ones.
    const double n = static_cast<double>(Layout(c.shape).count());
    const Vector mean = Values(out[1]), var = Values(out[2]);
    Vector mean_update = Values(running_mean), var_update = Values(running_var);
    for (size_t i = 0; i < mean.size(); ++i) {
      mean_update[i] = (1 - factor) * mean_update[i] + factor * mean[i];
      var_update[i] = (1 - factor) * var_update[i] + factor * var[i] * (n > 1 ? n / (n - 1) : 1);
    }
    const Vector tiny(mean.size(), 4 * 0x1p-52);
    ExpectNear(new_mean, mean_update, tiny, "running_mean");
    ExpectNear(new_var, var_update, tiny, "running_var");

    const auto g = NaiveBackward(c.shape, Values(dy), Values(x), scale_values, mean, var,
                                 handle.epsilon, true, eps);
    const auto d = BatchNormBackward(handle, dy, x, scale, out[1], out[2]);
    ExpectNear(d[0], g.dx, g.dx_tolerance, "dx");
    ExpectNear(d[1], g.dscale, g.dscale_tolerance, "dscale");
    ExpectNear(d[2], g.dbias, g.dbias_tolerance, "dbias");

    // Inference with fixed statistics.
    const Vector frozen_mean = Values(running_mean), frozen_var = Values(running_var);
    const Tensor y = BatchNormForwardInference(handle, x, scale, bias, running_mean, running_var);
    const Vector values = Values(x);
    Vector frozen(values.size()), tolerance(values.size());
    const Layout layout(c.shape);
    for (int64_t ch = 0; ch < layout.channels; ++ch) {
      const double a = scale_values[ch] / std::sqrt(frozen_var[ch] + handle.epsilon);
      layout.ForChannel(ch, [&](size_t i) {
        frozen[i] = (values[i] - frozen_mean[ch]) * a + bias_values[ch];
        tolerance[i] = 8 * eps *
                       ((std::abs(values[i]) + std::abs(frozen_mean[ch])) * std::abs(a) +
                        std::abs(bias_values[ch]));
      });
    }
    ExpectNear(y, frozen, tolerance, "y of inference");
    const auto f = NaiveBackward(c.shape, Values(dy), values, scale_values, frozen_mean, frozen_var,
                                 handle.epsilon, false, eps);
    const auto fd = BatchNormBackwardInference(handle, dy, x, scale, running_mean, running_var);
    ExpectNear(fd[0], f.dx, f.dx_tolerance, "dx through frozen statistics");
    ExpectNear(fd[1], f.dscale, f.dscale_tolerance, "dscale through frozen statistics");
    ExpectNear(fd[2], f.dbias, f.dbias_tolerance, "dbias through frozen statistics");
  }
}

TEST(BatchNorm, MatchesTheDefinitionOverRandomGeometries) {
  Random random(41);
  for (int i = 0; i < 220 && !testing::Test::HasFailure(); ++i)
    CheckCase(random, RandomCase(random));
}

TEST(BatchNorm, MatchesTheDefinitionWhereChannelsAreCutIntoPieces) {
  Random random(42);
  CheckCase(random, {.shape = {8, 64, 14, 14}});
  CheckCase(random, {.shape = {3, 5, 61, 67}});
  CheckCase(random, {.shape = {300, 130}});
  CheckCase(random, {.shape = {4, 17, 7, 7}, .dtype = kBFloat16});
}

/// dy where y is positive, else 0.
Vector CutOff(const Vector& dy, const Vector& y) {
  Vector g = dy;
  for (size_t i = 0; i < g.size(); ++i)
    if (y[i] <= 0) g[i] = 0;
  return g;
}

// Checks relu(bn(x) + add) against the definition, and its gradients with the signs of the computed
// y.
void CheckFused(Random& random, const Case& c, bool add, bool relu) {
  SCOPED_TRACE(c.shape.ToString() + " " + DTypeName(c.dtype) + (add ? " add" : "") +
               (relu ? " relu" : ""));
  const DType statistics = Statistics(c.dtype);
  const double eps = Epsilon(statistics);
  const Tensor x = Input(random, c), dy = AnyTensor(random, c.shape, c.dtype);
  const Tensor z = add ? AnyTensor(random, c.shape, c.dtype) : Tensor();
  const Tensor scale = RandomTensor(random, {c.shape[1]}, statistics, 0.5, 2);
  const Tensor bias = RandomTensor(random, {c.shape[1]}, statistics);
  const BatchNormHandle handle(0.1, x);
  Expected want =
      NaiveForward(c.shape, Values(x), Values(scale), Values(bias), handle.epsilon, eps);
  for (size_t i = 0; i < want.y.size(); ++i) {
    if (add) {
      const double more = Values(z)[i];
      want.y[i] += more;
      want.y_tolerance[i] += 8 * eps * std::abs(more);
    }
    if (relu) want.y[i] = std::max(want.y[i], 0.0);
  }
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = BatchNormForwardTraining(handle, x, scale, bias, {}, {}, z, relu);
    ExpectNear(out[0], want.y, want.y_tolerance, "y");
    // Fused and one operation after the other.
    Tensor y = BatchNormForwardTraining(handle, x, scale, bias, {}, {})[0];
    if (statistics == c.dtype) {
      if (add) y = Binary(BinaryOp::kAdd, y, z);
      if (relu) y = Unary(UnaryOp::kRelu, y);
      EXPECT_EQ(Values(out[0]), Values(y));
    }
    const Tensor frozen =
        BatchNormForwardInference(handle, x, scale, bias, out[1], out[2], z, relu);
    EXPECT_EQ(Values(frozen), Values(out[0])) << "the same statistics, given";

    const Vector cut = relu ? CutOff(Values(dy), Values(out[0])) : Values(dy);
    for (bool training : {true, false}) {
      SCOPED_TRACE(training ? "training" : "frozen statistics");
      auto* backward = training ? BatchNormBackward : BatchNormBackwardInference;
      const auto run = [&](bool need_x, bool need_scale, bool need_add) {
        return backward(handle, dy, x, scale, out[1], out[2], need_x, need_scale, relu, bias,
                        add ? out[0] : Tensor(), need_add);
      };
      const auto g = NaiveBackward(c.shape, cut, Values(x), Values(scale), Values(out[1]),
                                   Values(out[2]), handle.epsilon, training, eps);
      const auto d = run(true, true, add);
      ASSERT_EQ(d.size(), add ? 4u : 3u);
      ExpectNear(d[0], g.dx, g.dx_tolerance, "dx");
      ExpectNear(d[1], g.dscale, g.dscale_tolerance, "dscale");
      ExpectNear(d[2], g.dbias, g.dbias_tolerance, "dbias");
      // Each gradient is the same if it is computed alone.
      const auto only_x = run(true, false, false), only_scale = run(false, true, false);
      EXPECT_EQ(Values(only_x[0]), Values(d[0]));
      EXPECT_TRUE(only_x[1].empty() && only_x[2].empty() && only_scale[0].empty());
      EXPECT_EQ(Values(only_scale[1]), Values(d[1]));
      EXPECT_EQ(Values(only_scale[2]), Values(d[2]));
      if (!add) continue;
      EXPECT_EQ(Values(d[3]), cut);
      const auto only_add = run(false, false, true);
      EXPECT_TRUE(only_add[0].empty() && only_add[1].empty());
      EXPECT_EQ(Values(only_add[3]), cut);
    }
  }
}

TEST(BatchNorm, WithResidualAndRelu) {
  Random random(48);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    Case c = RandomCase(random);
    // A 16-bit y may round to zero where bn(x) does not.
    if (c.dtype == kFloat16) c.dtype = kFloat32;
    CheckFused(random, c, random.Coin(), random.Coin());
  }
}

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

TEST(BatchNorm, ReluLetsNanPass) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const double nan = std::nan("");
    const Tensor x = FromValues({2, 2}, {1, nan, -1, -2}), one = Full({2}, 1), none = Full({2}, 0);
    const BatchNormHandle handle(0.1, x, 0);
    const Tensor y = BatchNormForwardInference(handle, x, {}, {}, none, one, {}, true);
    ExpectNear(y, {1, nan, 0, 0}, Vector(4, 0.0), "y");
    const auto by_x =
        BatchNormBackwardInference(handle, x, x, {}, none, one, true, false, true, {}, {});
    const auto by_y =
        BatchNormBackwardInference(handle, x, x, {}, none, one, true, false, true, {}, y);
    ExpectNear(by_x[0], {1, nan, 0, 0}, Vector(4, 0.0), "dx");
    ExpectNear(by_y[0], {1, nan, 0, 0}, Vector(4, 0.0), "dx");
  }
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

TEST(BatchNorm, GradientIsThatOfTheFunction) {
  Random random(43);
  const Shape shape{3, 2, 2, 3};
  const Tensor x = RandomTensor(random, shape, kFloat64), r = RandomTensor(random, shape, kFloat64);
  const Tensor scale = RandomTensor(random, {2}, kFloat64, 0.5, 2);
  const Tensor bias = RandomTensor(random, {2}, kFloat64);
  const BatchNormHandle handle(0.1, x);
  const Vector weight = Values(r);
  const auto loss = [&](const Tensor& x, const Tensor& scale, const Tensor& bias) {
    const Vector y = Values(BatchNormForwardTraining(handle, x, scale, bias, {}, {})[0]);
    double sum = 0;
    for (size_t i = 0; i < y.size(); ++i) sum += weight[i] * y[i];
    return sum;
  };
  const auto out = BatchNormForwardTraining(handle, x, scale, bias, {}, {});
  const auto d = BatchNormBackward(handle, r, x, scale, out[1], out[2]);
  const std::vector<Tensor> arguments{x, scale, bias};
  for (size_t k = 0; k < 3; ++k) {
    const Vector at = Values(arguments[k]), analytic = Values(d[k]);
    for (size_t i = 0; i < at.size(); ++i) {
      double side[2];
      for (int s = 0; s < 2; ++s) {
        Vector moved = at;
        moved[i] += s ? 1e-6 : -1e-6;
        std::vector<Tensor> with = arguments;
        with[k] = FromValues(arguments[k].shape(), moved, kFloat64);
        side[s] = loss(with[0], with[1], with[2]);
      }
      EXPECT_NEAR(analytic[i], (side[1] - side[0]) / 2e-6, 1e-7) << "argument " << k << ", " << i;
    }
  }
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
  const int before = NumThreads();
  PreferenceScope scope(Preference::kReference);
  std::vector<Vector> results;
  for (int threads : {1, 2, 3}) {
    SetNumThreads(threads);
    results.push_back(Values(BatchNormForwardTraining(handle, x, {}, {}, {}, {})[0]));
  }
  SetNumThreads(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

TEST(BatchNorm, RefusesWhatIsWrong) {
  using Error = std::invalid_argument;
  const Tensor x(Shape{2, 3, 4, 4}), c = Full({3}, 1);
  const BatchNormHandle handle(0.1, x);
  ExpectError<Error>([] { BatchNormHandle(0.1, Tensor(Shape{3})); }, "[BatchNorm] x must have");
  ExpectError<Error>(
      [] {
        BatchNormHandle(0.1, Tensor(Shape{2, 3, 4, 4, 4, 1}));
      },
      "(2, 3, 4, 4, 4, 1)");
  ExpectError<Error>([] { BatchNormHandle(0.1, Tensor()); }, "x is an empty tensor");
  ExpectError<TypeError>(
      [] {
        BatchNormHandle(0.1, Tensor(Shape{2, 3}, nullptr, kInt32));
      },
      "float type");
  ExpectError<Error>([&] { BatchNormHandle(1.5, x); }, "momentum");
  ExpectError<Error>([&] { BatchNormHandle(std::nan(""), x); }, "momentum");
  ExpectError<Error>([&] { BatchNormHandle(0.1, x, -1); }, "epsilon");
  const auto train = [&](const Tensor& x, const Tensor& scale, const Tensor& bias,
                         const Tensor& mean, const Tensor& var) {
    return [=, &handle] { BatchNormForwardTraining(handle, x, scale, bias, mean, var); };
  };
  ExpectError<Error>(train(Tensor(Shape{2, 4, 4, 4}), c, c, c, c),
                     "[BatchNormForwardTraining] x has 4 channels, the handle was made for 3");
  ExpectError<Error>(train(x, Full({4}, 1), c, c, c), "scale must have shape (3,), got (4,)");
  ExpectError<Error>(train(x, c, Full({3, 1}, 1), c, c), "bias must have shape");
  ExpectError<Error>(train(x, c, c, Full({1, 4, 1, 1}, 1), c), "shape (3,), got (1, 4, 1, 1)");
  ExpectError<TypeError>(train(x, Full({3}, 1, nullptr, kFloat64), c, c, c), "scale must be");
  ExpectError<TypeError>(train(x, c, c, Full({3}, 1, nullptr, kBFloat16), c), "running_mean");
  ExpectError<Error>(train(x, c, c, c, Full({6}, 1).SliceAxis(0, 0, 6, 2)),
                     "running_var is updated in place");
  ExpectError<Error>(train(x, Full({3}, 1, CreateCpuDevice()), c, c, c), "scale is on");
  ExpectError<Error>([&] { BatchNormForwardInference(handle, x, c, c, {}, c); },
                     "[BatchNormForwardInference] running_mean is an empty tensor");
  ExpectError<Error>(
      [&] {
        BatchNormBackward(handle, Tensor(Shape{2, 3, 4, 5}), x, c, c, c);
      },
      "dy must have the shape of x (2, 3, 4, 4), got (2, 3, 4, 5)");
  ExpectError<TypeError>([&] { BatchNormBackward(handle, x.AsType(kFloat64), x, c, c, c); },
                         "dy must have the type");
  ExpectError<Error>([&] { BatchNormBackward(handle, x, x, c, c, {}); }, "var is an empty tensor");
  ExpectError<Error>(
      [&] {
        BatchNormForwardTraining(handle, x, c, c, c, c, Tensor(Shape{2, 3, 4, 1}));
      },
      "[BatchNormForwardTraining] add must have the shape of x (2, 3, 4, 4), got (2, 3, 4, 1)");
  ExpectError<TypeError>(
      [&] { BatchNormForwardInference(handle, x, c, c, c, c, x.AsType(kBFloat16)); },
      "[BatchNormForwardInference] add must have the type");
  ExpectError<Error>(
      [&] { BatchNormBackward(handle, x, x, c, c, c, true, true, true, c, {}, true); },
      "y is an empty tensor (None), but tells where the gradient of what was added passes ReLU");
  ExpectError<Error>(
      [&] {
        BatchNormBackward(handle, x, x, c, c, c, true, true, true, {}, Tensor(Shape{2, 3}));
      },
      "y must have the shape of x");
}

}  // namespace
}  // namespace singa
