#include "singa/operation/lrn.h"

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

struct Case {
  Shape shape;
  int64_t size = 5;
  double alpha = 1e-4, beta = 0.75, k = 1;
  DType dtype = kFloat32;
};

void CheckCase(Random& random, const Case& c) {
  std::ostringstream trace;
  trace << c.shape << " " << DTypeName(c.dtype) << " size " << c.size << " alpha " << c.alpha
        << " beta " << c.beta << " k " << c.k;
  SCOPED_TRACE(trace.str());
  const Tensor x = AnyTensor(random, c.shape, c.dtype, -2, 2);
  const Tensor dy = AnyTensor(random, c.shape, c.dtype);
  const Vector in = Values(x), gradient = Values(dy);
  const int64_t channels = c.shape[1], spatial = c.shape.Count(2, c.shape.rank());
  const double scale = c.alpha / static_cast<double>(c.size);
  const double eps = c.dtype == kFloat64 ? 0x1p-52 : 0x1p-23;
  // Errors of the sum of `size` squares, and of a power: beta times that of its base.
  const double bound = 8 * eps * std::sqrt(c.size) * (1 + c.beta);

  Vector base(in.size()), y(in.size()), y_tolerance(in.size()), dx(in.size(), 0.0),
      dx_tolerance(in.size(), 0.0);
  // Calls visit(position of c, position of a channel in its window).
  const auto pairs = [&](const auto& visit) {
    for (int64_t n = 0; n < c.shape[0]; ++n)
      for (int64_t ch = 0; ch < channels; ++ch)
        for (int64_t j = ch - c.size / 2; j <= ch + (c.size - 1) / 2; ++j)
          for (int64_t s = 0; s < spatial && j >= 0 && j < channels; ++s)
            visit((n * channels + ch) * spatial + s, (n * channels + j) * spatial + s);
  };
  pairs([&](size_t i, size_t j) { base[i] += scale * in[j] * in[j]; });
  for (size_t i = 0; i < in.size(); ++i) {
    base[i] += c.k;
    const double power = std::pow(base[i], -c.beta);
    y[i] = in[i] * power;
    y_tolerance[i] = bound * std::abs(y[i]);
    dx[i] = gradient[i] * power;
    dx_tolerance[i] = std::abs(dx[i]);
  }
  pairs([&](size_t i, size_t j) {  // y[i] depends on x[j]
    const double term =
        2 * c.beta * scale * gradient[i] * in[i] * in[j] * std::pow(base[i], -c.beta - 1);
    dx[j] -= term;
    dx_tolerance[j] += std::abs(term);
  });
  for (double& tolerance : dx_tolerance) tolerance *= bound;

  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto out = LrnForward(x, c.size, c.alpha, c.beta, c.k);
    ASSERT_EQ(out.size(), 2u);
    EXPECT_EQ(out[0].data_type(), c.dtype);
    ExpectNear(out[0], y, y_tolerance, "y");
    ExpectNear(LrnBackward(dy, x, out[0], out[1], c.size, c.alpha, c.beta, c.k), dx, dx_tolerance,
               "dx");
    const auto inference = LrnForward(x, c.size, c.alpha, c.beta, c.k, false);
    EXPECT_TRUE(inference[1].empty());
    ExpectNear(inference[0], y, y_tolerance, "y, not training");
    ExpectNear(LrnBackward(dy, x, {}, {}, c.size, c.alpha, c.beta, c.k), dx, dx_tolerance,
               "dx, nothing saved");
  }
}

TEST(Lrn, MatchesTheDefinitionOverRandomGeometries) {
  Random random(71);
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  constexpr double kBetas[] = {0.75, 0.75, 0.5, 1, 0.3, 2};
  for (int i = 0; i < 240 && !testing::Test::HasFailure(); ++i) {
    Case c;
    c.shape = {random.Int(1, 3), random.Int(1, 40)};
    for (int64_t axes = random.Int(0, 3) ? 2 : random.Int(0, 3); axes > 0; --axes)
      c.shape.push_back(random.Int(1, 8));
    c.size = random.Int(1, 9);
    c.alpha = random.Coin() ? 1e-4 : random.Real(0, 2);
    c.beta = kBetas[random.Int(0, 5)];
    c.k = random.Coin() ? 1 : random.Real(0.5, 3);
    c.dtype = kTypes[random.Int(0, 5)];
    CheckCase(random, c);
  }
}

TEST(Lrn, MatchesTheDefinitionForAlexnetAndGooglenet) {
  Random random(72);
  CheckCase(random, {{2, 96, 13, 13}, 5, 1e-4, 0.75, 2});
  CheckCase(random, {{1, 64, 28, 28}, 5, 1e-4, 0.75, 1});
  CheckCase(random, {{1, 48, 19, 19}, 5, 1, 0.75, 1});
}

TEST(Lrn, GradientIsThatOfTheFunction) {
  Random random(73);
  const Shape shape{2, 6, 2, 2};
  const Tensor x = RandomTensor(random, shape, kFloat64, -2, 2);
  const Tensor r = RandomTensor(random, shape, kFloat64);
  const Vector weight = Values(r), at = Values(x);
  for (int64_t size : {1, 3, 4}) {
    const auto out = LrnForward(x, size, 0.7, 0.6, 1.1);
    const Vector dx = Values(LrnBackward(r, x, out[0], out[1], size, 0.7, 0.6, 1.1));
    for (size_t i = 0; i < at.size(); ++i) {
      double side[2] = {0, 0};
      for (int s = 0; s < 2; ++s) {
        Vector moved = at;
        moved[i] += s ? 1e-6 : -1e-6;
        const Vector y =
            Values(LrnForward(FromValues(shape, moved, kFloat64), size, 0.7, 0.6, 1.1)[0]);
        for (size_t j = 0; j < y.size(); ++j) side[s] += weight[j] * y[j];
      }
      EXPECT_NEAR(dx[i], (side[1] - side[0]) / 2e-6, 1e-8) << size << ", " << i;
    }
  }
}

TEST(Lrn, SavedOfOneImplementationServesTheOther) {
  Random random(74);
  const Tensor x = RandomTensor(random, {2, 32, 5, 5}), dy = RandomTensor(random, {2, 32, 5, 5});
  std::vector<Tensor> results;
  for (Preference forward : kImplementations) {
    for (Preference backward : kImplementations) {
      PreferenceScope outer(forward);
      const auto out = LrnForward(x, 5, 1, 0.75, 2);
      PreferenceScope inner(backward);
      results.push_back(LrnBackward(dy, x, out[0], out[1], 5, 1, 0.75, 2));
    }
  }
  const Vector first = Values(results[0]), tolerance(first.size(), 32 * 0x1p-23);
  for (const Tensor& result : results) ExpectNear(result, first, tolerance, "dx");
}

TEST(Lrn, EmptyBatch) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const Tensor x(Shape{0, 4, 3, 3});
    const auto out = LrnForward(x, 5);
    EXPECT_EQ(out[0].shape(), x.shape());
    EXPECT_EQ(LrnBackward(x, x, out[0], out[1], 5, 1e-4, 0.75, 1).shape(), x.shape());
  }
}

TEST(Lrn, RefusesWhatIsWrong) {
  using Error = std::invalid_argument;
  const Tensor x = Full({1, 4, 2, 2}, 1);
  ExpectError<Error>([] { LrnForward({}, 5); }, "[LrnForward] x is an empty tensor");
  ExpectError<Error>([] { LrnForward(Full({4}, 1), 5); }, "x must have shape (N, C, ...)");
  ExpectError<TypeError>([] { LrnForward(Full({1, 4}, 1, nullptr, kInt32), 5); }, "float type");
  ExpectError<Error>([&] { LrnForward(x, 0); }, "size must be at least 1, got 0");
  ExpectError<Error>([&] { LrnForward(x, 5, std::nan("")); }, "finite");
  ExpectError<Error>(
      [&] {
        LrnBackward(Full({1, 4, 2, 3}, 1), x, {}, {}, 5, 1e-4, 0.75, 1);
      },
      "[LrnBackward] dy must have the shape of x");
  ExpectError<Error>([&] { LrnBackward(x, x, {}, Full({4}, 1), 5, 1e-4, 0.75, 1); },
                     "saved must have shape (1, 4, 2, 2)");
}

}  // namespace
}  // namespace singa
