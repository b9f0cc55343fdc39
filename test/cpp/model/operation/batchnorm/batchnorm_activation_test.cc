// The activations behind batch norm, against their definitions in float64.

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "model/operation/activation.h"
#include "model/operation/batchnorm/batchnorm_naive.h"
#include "singa/core/device.h"
#include "singa/operation/batchnorm.h"
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

constexpr Activation kClipped(ActivationKind::kClip, -0.5, 0.75);

/// An activation and its derivative, by their definitions.
struct Formula {
  Activation activation;
  double (*value)(double);
  double (*slope)(double);
  std::vector<double> kinks;
};

double SigmoidOf(double v) { return 1 / (1 + std::exp(-v)); }

const Formula kFormulas[] = {{true,
                              [](double v) { return std::max(v, 0.0); },
                              [](double v) { return v > 0 ? 1.0 : 0.0; },
                              {0}},
                             {kClipped,
                              [](double v) { return std::clamp(v, -0.5, 0.75); },
                              [](double v) { return v > -0.5 && v < 0.75 ? 1.0 : 0.0; },
                              {-0.5, 0.75}},
                             {ActivationKind::kHardSwish,
                              [](double v) { return v * std::clamp(v + 3, 0.0, 6.0) / 6; },
                              [](double v) { return v < -3  ? 0.0
                                                    : v > 3 ? 1.0
                                                            : (2 * v + 3) / 6; },
                              {-3, 3}},
                             {ActivationKind::kSilu,
                              [](double v) { return v * SigmoidOf(v); },
                              [](double v) { return SigmoidOf(v) * (1 + v * (1 - SigmoidOf(v))); },
                              {}}};

struct Case {
  Shape shape;
  DType dtype;
};

Case RandomCase(Random& random) {
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  Case c{{random.Int(1, 6), random.Int(1, 35)}, kTypes[random.Int(0, 4)]};
  for (int64_t axes = random.Int(0, 3); axes > 0; --axes) c.shape.push_back(random.Int(1, 9));
  if (c.shape.rank() == 2) c.shape[0] = random.Int(1, 40);
  return c;
}

// Checks f(bn(x)) and its gradients against the definitions, in training and with given statistics.
// The gradients are those at the statistics that forward returned.
void CheckActivated(Random& random, const Case& c, const Formula& f) {
  SCOPED_TRACE(c.shape.ToString() + " " + DTypeName(c.dtype) + ActivationSuffix(f.activation));
  const DType statistics = Statistics(c.dtype);
  const double eps = Epsilon(statistics);
  const Tensor x = AnyTensor(random, c.shape, c.dtype, -1, 2);
  const Tensor scale = RandomTensor(random, {c.shape[1]}, statistics, 0.5, 4);
  const Tensor bias = RandomTensor(random, {c.shape[1]}, statistics);
  const BatchNormHandle handle(0.1, x);
  Expected want =
      NaiveForward(c.shape, Values(x), Values(scale), Values(bias), handle.epsilon, eps);
  Vector dy_values = Values(AnyTensor(random, c.shape, c.dtype));
  for (size_t i = 0; i < dy_values.size(); ++i) {
    const double v = want.y[i];
    for (double kink : f.kinks)
      if (std::abs(v - kink) < 1e-2) dy_values[i] = 0;
    want.y[i] = f.value(v);
    want.y_tolerance[i] = 1.5 * want.y_tolerance[i] + 8 * eps * std::abs(v);
  }
  const Tensor dy = FromValues(c.shape, dy_values, c.dtype);
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = BatchNormForwardTraining(handle, x, scale, bias, {}, {}, {}, f.activation);
    ExpectNear(out[0], want.y, want.y_tolerance, "y");
    const Tensor frozen =
        BatchNormForwardInference(handle, x, scale, bias, out[1], out[2], {}, f.activation);
    EXPECT_EQ(Values(frozen), Values(out[0])) << "the same statistics, given";
    Vector g = Values(dy);
    const Layout layout(c.shape);
    const Vector values = Values(x), mean = Values(out[1]), var = Values(out[2]);
    for (int64_t ch = 0; ch < layout.channels; ++ch) {
      const double a = Values(scale)[ch] / std::sqrt(var[ch] + handle.epsilon);
      layout.ForChannel(
          ch, [&](size_t i) { g[i] *= f.slope((values[i] - mean[ch]) * a + Values(bias)[ch]); });
    }
    for (bool training : {true, false}) {
      SCOPED_TRACE(training ? "training" : "frozen statistics");
      auto* backward = training ? BatchNormBackward : BatchNormBackwardInference;
      const auto n = NaiveBackward(c.shape, g, values, Values(scale), mean, var, handle.epsilon,
                                   training, eps);
      // The slope, and with it g, is known to some steps of the argument's terms.
      auto bound = NaiveBackward(c.shape, Values(dy), values, Values(scale), mean, var,
                                 handle.epsilon, training, eps);
      for (Vector* tolerance :
           {&bound.dx_tolerance, &bound.dscale_tolerance, &bound.dbias_tolerance})
        for (double& t : *tolerance) t *= 16;
      const auto d = backward(handle, dy, x, scale, out[1], out[2], true, true, f.activation, bias,
                              Tensor(), false);
      ASSERT_EQ(d.size(), 3u);
      ExpectNear(d[0], n.dx, bound.dx_tolerance, "dx");
      ExpectNear(d[1], n.dscale, bound.dscale_tolerance, "dscale");
      ExpectNear(d[2], n.dbias, bound.dbias_tolerance, "dbias");
    }
  }
}

TEST(BatchNorm, WithEachActivation) {
  Random random(50);
  for (int i = 0; i < 120 && !testing::Test::HasFailure(); ++i) {
    CheckActivated(random, RandomCase(random), kFormulas[i % 4]);
  }
}

TEST(BatchNorm, NanStaysNanBehindEachActivation) {
  const Tensor x = FromValues({2, 1, 1, 2}, {std::nan(""), 1, 2, 3}), one = Full({1}, 1);
  const BatchNormHandle handle(0.1, x);
  for (const Formula& f : kFormulas) {
    for (Preference preference : kImplementations) {
      PreferenceScope scope(preference);
      const Tensor zero = Full({1}, 0);
      const Vector y =
          Values(BatchNormForwardInference(handle, x, one, zero, zero, one, {}, f.activation));
      EXPECT_TRUE(std::isnan(y[0]) && !std::isnan(y[1])) << ActivationSuffix(f.activation);
      for (double v :
           Values(BatchNormForwardTraining(handle, x, one, zero, {}, {}, {}, f.activation)[0]))
        EXPECT_TRUE(std::isnan(v)) << ActivationSuffix(f.activation);
    }
  }
}

TEST(BatchNorm, RefusesActivations) {
  const Tensor x = Full({2, 3, 2, 2}, 1), one = Full({3}, 1);
  const BatchNormHandle handle(0.1, x);
  const auto forward = [&](const Activation& activation, const Tensor& add = Tensor()) {
    return [&, activation, add] {
      BatchNormForwardInference(handle, x, one, one, one, one, add, activation);
    };
  };
  ExpectError<std::invalid_argument>(
      forward(ActivationKind::kSilu, x),
      "[BatchNormForwardInference] the activation behind an addition must be ReLU or none");
  ExpectError<std::invalid_argument>(forward({ActivationKind::kClip, 2, 1}),
                                     "in order, got 2 and 1");
  ExpectError<std::invalid_argument>(forward({ActivationKind::kClip, std::nan(""), 1}),
                                     "in order, got nan and 1");
  ExpectError<std::invalid_argument>(forward({ActivationKind::kRelu, 0, 1}),
                                     "only a clip has limits, got 0 and 1");
  ExpectError<std::invalid_argument>(forward(static_cast<ActivationKind>(9)),
                                     "activation must be in [0, 5), got 9");
  ExpectError<std::invalid_argument>(
      [&] {
        BatchNormBackward(handle, x, x, one, one, one, true, true, ActivationKind::kSilu, one, x,
                          true);
      },
      "[BatchNormBackward] the activation behind an addition must be ReLU or none");
}

}  // namespace
}  // namespace singa
