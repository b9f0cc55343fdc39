#include "singa/operation/softmax.h"

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
/// Results below the normal range of float32 may become zero.
constexpr double kUnderflow = 0x1p-125;

struct Case {
  Shape shape;
  int axis = 1;
  DType dtype = kFloat32;
  double low = -3, high = 3;
};

/// Calls visit(positions) for each lane along the axis.
template <class F>
void ForLanes(const Case& c, const F& visit) {
  const int64_t length = c.shape[c.axis];
  const int64_t inner = c.shape.Count(c.axis + 1, c.shape.rank());
  for (int64_t o = 0; o < c.shape.Count(0, c.axis); ++o)
    for (int64_t i = 0; i < inner; ++i) {
      std::vector<size_t> lane;
      for (int64_t a = 0; a < length; ++a) lane.push_back((o * length + a) * inner + i);
      visit(lane);
    }
}

void CheckCase(Random& random, const Case& c) {
  SCOPED_TRACE(c.shape.ToString() + " " + DTypeName(c.dtype) + " axis " + std::to_string(c.axis));
  const Tensor x = AnyTensor(random, c.shape, c.dtype, c.low, c.high);
  const Tensor dy = AnyTensor(random, c.shape, c.dtype);
  const Vector in = Values(x), gradient = Values(dy);
  const double eps = c.dtype == kFloat64 ? 0x1p-52 : 0x1p-23;
  const double bound = 8 * eps * std::sqrt(c.shape[c.axis]);
  Vector y(in.size()), y_tolerance(in.size()), log_y(in.size()), log_tolerance(in.size());
  ForLanes(c, [&](const std::vector<size_t>& lane) {
    double most = -kInf, sum = 0;
    for (size_t i : lane) most = std::max(most, in[i]);
    for (size_t i : lane) sum += std::exp(in[i] - most);
    for (size_t i : lane) {
      const double shift = in[i] - most;
      y[i] = std::exp(shift) / sum;
      // The absolute error of exp's argument is the relative error of its result.
      y_tolerance[i] = (bound + 8 * eps * std::abs(shift)) * y[i] + kUnderflow;
      log_y[i] = shift - std::log(sum);
      log_tolerance[i] = bound + 8 * eps * (std::abs(in[i]) + std::abs(most) + std::log(sum));
    }
  });

  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const Tensor soft = Softmax(x, c.axis), log = LogSoftmax(x, c.axis - c.shape.rank());
    EXPECT_EQ(soft.data_type(), c.dtype);
    EXPECT_EQ(soft.shape(), c.shape);
    ExpectNear(soft, y, y_tolerance, "softmax");
    ExpectNear(log, log_y, log_tolerance, "log-softmax");

    // Expected gradients, from the inputs that backward gets.
    const Vector s = Values(soft), l = Values(log);
    Vector dx(in.size()), tolerance(in.size()), log_dx(in.size()), log_dx_tolerance(in.size());
    ForLanes(c, [&](const std::vector<size_t>& lane) {
      double product = 0, product_magnitude = 0, sum = 0, magnitude = 0;
      for (size_t i : lane) {
        product += gradient[i] * s[i];
        product_magnitude += std::abs(gradient[i] * s[i]);
        sum += gradient[i];
        magnitude += std::abs(gradient[i]);
      }
      for (size_t i : lane) {
        dx[i] = s[i] * (gradient[i] - product);
        tolerance[i] =
            s[i] * (8 * eps * std::abs(gradient[i]) + bound * product_magnitude) + kUnderflow;
        log_dx[i] = gradient[i] - std::exp(l[i]) * sum;
        log_dx_tolerance[i] = 8 * eps * std::abs(gradient[i]) +
                              std::exp(l[i]) * (bound + 8 * eps * std::abs(l[i])) * magnitude;
      }
    });
    ExpectNear(SoftmaxBackward(dy, soft, c.axis), dx, tolerance, "softmax dx");
    ExpectNear(LogSoftmaxBackward(dy, log, c.axis), log_dx, log_dx_tolerance, "log-softmax dx");
  }
}

TEST(Softmax, MatchesTheDefinitionOverRandomGeometries) {
  Random random(81);
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  for (int i = 0; i < 240 && !testing::Test::HasFailure(); ++i) {
    Case c;
    c.shape = random.Dims(static_cast<int>(random.Int(1, 5)), 1, 6);
    c.axis = static_cast<int>(random.Int(0, c.shape.rank() - 1));
    c.shape[c.axis] = random.Int(1, 70);
    c.dtype = kTypes[random.Int(0, 5)];
    if (random.Int(0, 3) == 0) c.low = -60, c.high = 60;
    CheckCase(random, c);
  }
}

TEST(Softmax, MatchesTheDefinitionForLongLanes) {
  Random random(82);
  CheckCase(random, {{128, 1000}});
  CheckCase(random, {{2, 21, 33, 35}});
  CheckCase(random, {{40000, 3}});
  CheckCase(random, {{3, 5000}, 1, kFloat32, -200, 80});
}

TEST(Softmax, GradientIsThatOfTheFunction) {
  Random random(83);
  const Shape shape{2, 5, 3};
  const Tensor x = RandomTensor(random, shape, kFloat64, -2, 2);
  const Tensor r = RandomTensor(random, shape, kFloat64);
  const Vector weight = Values(r), at = Values(x);
  for (bool log : {false, true}) {
    const auto forward = log ? LogSoftmax : Softmax;
    const auto backward = log ? LogSoftmaxBackward : SoftmaxBackward;
    const Vector dx = Values(backward(r, forward(x, 1), 1));
    for (size_t i = 0; i < at.size(); ++i) {
      double side[2] = {0, 0};
      for (int s = 0; s < 2; ++s) {
        Vector moved = at;
        moved[i] += s ? 1e-6 : -1e-6;
        const Vector y = Values(forward(FromValues(shape, moved, kFloat64), 1));
        for (size_t j = 0; j < y.size(); ++j) side[s] += weight[j] * y[j];
      }
      EXPECT_NEAR(dx[i], (side[1] - side[0]) / 2e-6, 1e-8) << log << ", " << i;
    }
  }
}

TEST(Softmax, ExtremeLanes) {
  for (Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    const auto expect = [](const Vector& x, const Vector& y, const Vector& log_y) {
      const Shape shape{1, static_cast<int64_t>(x.size())};
      const Vector none(x.size(), 0.0);
      ExpectNear(Softmax(FromValues(shape, x)), y, none, "softmax");
      ExpectNear(LogSoftmax(FromValues(shape, x)), log_y, none, "log-softmax");
    };
    const double half = std::log(0.5);
    expect({3e38, -3e38}, {1, 0}, {0, -kInf});
    expect({1e4, 1e4}, {0.5, 0.5}, {half, half});
    expect({-1e4, -1e4}, {0.5, 0.5}, {half, half});
    expect({-kInf, 0, 0}, {0, 0.5, 0.5}, {-kInf, half, half});
    expect({-kInf, -kInf}, {kNan, kNan}, {kNan, kNan});
    expect({kInf, 0}, {kNan, kNan}, {kNan, kNan});
    expect({kNan, 0, 1}, {kNan, kNan, kNan}, {kNan, kNan, kNan});
  }
}

TEST(Softmax, NothingToDo) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    for (const Shape& shape : {Shape{0, 5}, Shape{5, 0}, Shape{2, 0, 3}, Shape{2, 3, 0}}) {
      const Tensor x(shape);
      EXPECT_EQ(Softmax(x).shape(), shape);
      EXPECT_EQ(LogSoftmax(x).shape(), shape);
      EXPECT_EQ(SoftmaxBackward(x, x).shape(), shape);
      EXPECT_EQ(LogSoftmaxBackward(x, x).shape(), shape);
    }
  }
}

TEST(Softmax, RefusesWhatIsWrong) {
  using Error = std::invalid_argument;
  const Tensor x = Full({2, 3}, 1);
  ExpectError<Error>([] { Softmax({}); }, "[Softmax] x is an empty tensor");
  ExpectError<TypeError>(
      [] {
        LogSoftmax(Full({2, 3}, 1, nullptr, kInt64));
      },
      "[LogSoftmax] x must be of a float type");
  ExpectError<Error>([&] { Softmax(x, 2); }, "[Softmax]");
  ExpectError<Error>([&] { Softmax(x, -3); }, "[Softmax]");
  ExpectError<Error>(
      [&] {
        SoftmaxBackward(Full({3, 2}, 1), x);
      },
      "[SoftmaxBackward] dy must have the shape of y (2, 3), got (3, 2)");
  ExpectError<TypeError>([&] { LogSoftmaxBackward(x.AsType(kFloat64), x); },
                         "[LogSoftmaxBackward] dy must have the type of y");
}

}  // namespace
}  // namespace singa
