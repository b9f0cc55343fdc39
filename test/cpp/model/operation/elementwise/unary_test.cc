#include <numbers>

#include "model/operation/elementwise/spec.h"
#include "model/operation/padded_layout.h"
#include "singa/core/threads.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::ExpectError;
using test::ExpectNear;
using test::FromValues;
using test::IsPaddedWithZeros;
using test::PaddedLayout;
using test::Random;
using test::RandomTensor;
using test::RandomView;
using test::Values;

using Real = long double;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

struct Function {
  UnaryOp op;
  double low, high;  // range of the tested points, which are not kinks
  double a, b;
  Real (*f)(Real x, Real a, Real b);
};

Real Sigmoid(Real x) { return 1 / (1 + std::exp(-x)); }
Real RoundEven(Real x) {
  const Real down = std::floor(x);
  if (x - down != 0.5L) return std::floor(x + 0.5L);
  return std::fmod(down, 2) == 0 ? down : down + 1;
}
Real EluOf(Real x, Real a) { return x >= 0 ? x : a * (std::exp(x) - 1); }

// All functions by their definitions, in extended precision.
const Function kFunctions[] = {
    {UnaryOp::kAbs, -3, 3, 0, 0, [](Real x, Real, Real) { return x < 0 ? -x : x; }},
    {UnaryOp::kSign, -3, 3, 0, 0, [](Real x, Real, Real) -> Real { return (x > 0) - (x < 0); }},
    {UnaryOp::kNegative, -3, 3, 0, 0, [](Real x, Real, Real) { return -x; }},
    {UnaryOp::kReciprocal, 0.3, 3, 0, 0, [](Real x, Real, Real) { return 1 / x; }},
    {UnaryOp::kSquare, -3, 3, 0, 0, [](Real x, Real, Real) { return x * x; }},
    {UnaryOp::kSqrt, 0.1, 9, 0, 0, [](Real x, Real, Real) { return std::sqrt(x); }},
    {UnaryOp::kExp, -5, 5, 0, 0, [](Real x, Real, Real) { return std::exp(x); }},
    {UnaryOp::kLog, 0.1, 9, 0, 0, [](Real x, Real, Real) { return std::log(x); }},
    {UnaryOp::kErf, -3, 3, 0, 0, [](Real x, Real, Real) { return std::erf(x); }},
    {UnaryOp::kCeil, -3, 3, 0, 0, [](Real x, Real, Real) { return std::ceil(x); }},
    {UnaryOp::kFloor, -3, 3, 0, 0, [](Real x, Real, Real) { return std::floor(x); }},
    {UnaryOp::kRound, -3, 3, 0, 0,
     [](Real x, Real, Real) { return x < 0 ? -std::floor(-x + 0.5L) : std::floor(x + 0.5L); }},
    {UnaryOp::kRoundE, -3, 3, 0, 0, [](Real x, Real, Real) { return RoundEven(x); }},
    {UnaryOp::kSin, -4, 4, 0, 0, [](Real x, Real, Real) { return std::sin(x); }},
    {UnaryOp::kCos, -4, 4, 0, 0, [](Real x, Real, Real) { return std::cos(x); }},
    {UnaryOp::kTan, -1.4, 1.4, 0, 0, [](Real x, Real, Real) { return std::tan(x); }},
    {UnaryOp::kAsin, -0.95, 0.95, 0, 0, [](Real x, Real, Real) { return std::asin(x); }},
    {UnaryOp::kAcos, -0.95, 0.95, 0, 0, [](Real x, Real, Real) { return std::acos(x); }},
    {UnaryOp::kAtan, -4, 4, 0, 0, [](Real x, Real, Real) { return std::atan(x); }},
    {UnaryOp::kSinh, -3, 3, 0, 0, [](Real x, Real, Real) { return std::sinh(x); }},
    {UnaryOp::kCosh, -3, 3, 0, 0, [](Real x, Real, Real) { return std::cosh(x); }},
    {UnaryOp::kTanh, -3, 3, 0, 0, [](Real x, Real, Real) { return std::tanh(x); }},
    {UnaryOp::kAsinh, -4, 4, 0, 0, [](Real x, Real, Real) { return std::asinh(x); }},
    {UnaryOp::kAcosh, 1.1, 9, 0, 0, [](Real x, Real, Real) { return std::acosh(x); }},
    {UnaryOp::kAtanh, -0.95, 0.95, 0, 0, [](Real x, Real, Real) { return std::atanh(x); }},
    {UnaryOp::kSigmoid, -6, 6, 0, 0, [](Real x, Real, Real) { return Sigmoid(x); }},
    {UnaryOp::kRelu, -3, 3, 0, 0, [](Real x, Real, Real) { return std::max<Real>(x, 0); }},
    {UnaryOp::kSoftPlus, -6, 6, 0, 0, [](Real x, Real, Real) { return std::log1p(std::exp(x)); }},
    {UnaryOp::kSoftSign, -4, 4, 0, 0, [](Real x, Real, Real) { return x / (1 + std::abs(x)); }},
    {UnaryOp::kElu, -4, 4, 0.7, 0, [](Real x, Real a, Real) { return EluOf(x, a); }},
    {UnaryOp::kSelu, -4, 4, 1.67326, 1.0507,
     [](Real x, Real a, Real b) { return b * EluOf(x, a); }},
    {UnaryOp::kLeakyRelu, -4, 4, 0.1, 0, [](Real x, Real a, Real) { return x >= 0 ? x : a * x; }},
    {UnaryOp::kHardSigmoid, -4, 4, 0.2, 0.5,
     [](Real x, Real a, Real b) { return std::min<Real>(1, std::max<Real>(0, a * x + b)); }},
    {UnaryOp::kClip, -4, 4, -1.5, 2,
     [](Real x, Real a, Real b) { return std::min(b, std::max(a, x)); }},
    {UnaryOp::kGelu, -5, 5, 0, 0,
     [](Real x, Real, Real) { return x * std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2; }},
    {UnaryOp::kGeluTanh, -5, 5, 0, 0,
     [](Real x, Real, Real) {
       const Real root = std::sqrt(2 / std::numbers::pi_v<Real>);
       return x * (1 + std::tanh(root * (x + Real(0.044715L) * x * x * x))) / 2;
     }},
    {UnaryOp::kSilu, -6, 6, 0, 0, [](Real x, Real, Real) { return x * Sigmoid(x); }},
    {UnaryOp::kMish, -6, 6, 0, 0,
     [](Real x, Real, Real) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {UnaryOp::kHardSwish, -5, 5, 0, 0,
     [](Real x, Real, Real) { return x * std::min<Real>(6, std::max<Real>(0, x + 3)) / 6; }},
    {UnaryOp::kAddScalar, -3, 3, 1.25, 0, [](Real x, Real a, Real) { return x + a; }},
    {UnaryOp::kMulScalar, -3, 3, -2.5, 0, [](Real x, Real a, Real) { return a * x; }},
    {UnaryOp::kScalarSub, -3, 3, 1.25, 0, [](Real x, Real a, Real) { return a - x; }},
    {UnaryOp::kScalarDiv, 0.3, 3, 1.5, 0, [](Real x, Real a, Real) { return a / x; }},
    {UnaryOp::kPowScalar, 0.2, 4, 1.5, 0, [](Real x, Real a, Real) { return std::pow(x, a); }},
    {UnaryOp::kPowScalar, -3, 3, 2, 0, [](Real x, Real a, Real) { return std::pow(x, a); }},
    {UnaryOp::kPowScalar, -3, 3, 3, 0, [](Real x, Real a, Real) { return std::pow(x, a); }},
    {UnaryOp::kPowScalar, 0.2, 4, -0.5, 0, [](Real x, Real a, Real) { return std::pow(x, a); }},
    {UnaryOp::kPowScalar, -3, 3, 0, 0, [](Real, Real, Real) { return Real(1); }},
    {UnaryOp::kScalarPow, -4, 4, 2.5, 0, [](Real x, Real a, Real) { return std::pow(a, x); }},
    {UnaryOp::kScalarPow, 0.5, 4, 0, 0, [](Real, Real, Real) { return Real(0); }},
    {UnaryOp::kLogicalNot, -3, 3, 0, 0, [](Real x, Real, Real) -> Real { return x == 0; }},
    {UnaryOp::kHardTanh, -4, 4, -1.5, 2,
     [](Real x, Real a, Real b) { return std::min(b, std::max(a, x)); }},
};

TEST(Unary, TableIsComplete) {
  std::vector<bool> seen(static_cast<size_t>(UnaryOp::kCount));
  for (const Function& function : kFunctions) seen[static_cast<size_t>(function.op)] = true;
  for (size_t op = 0; op < seen.size(); ++op)
    EXPECT_TRUE(seen[op]) << UnaryName(static_cast<UnaryOp>(op));
}

// The error of the C library is a few units in the last place; the rest of the tolerance is for
// rounded inputs and constants.
TEST(Unary, ForwardOverTypesAndViews) {
  Random random(1);
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16, kFloat16}) {
    const double eps = Epsilon(dtype == kFloat64 ? kFloat64 : kFloat32);
    for (const Function& f : kFunctions) {
      for (const Shape& shape : {Shape{}, Shape{3, 0}, Shape{700}, Shape{3, 5, 4}}) {
        const Tensor x = AnyTensor(random, shape, dtype, f.low, f.high);
        const double a = dtype == kFloat64 ? f.a : static_cast<float>(f.a);
        const double b = dtype == kFloat64 ? f.b : static_cast<float>(f.b);
        std::vector<double> want, tolerance;
        for (double value : Values(x)) {
          want.push_back(static_cast<double>(f.f(value, a, b)));
          tolerance.push_back(4 * eps * std::abs(want.back()) + eps);
        }
        const Tensor y = Unary(f.op, x, f.a, f.b);
        EXPECT_EQ(y.data_type(), dtype);
        EXPECT_TRUE(y.is_contiguous());
        ExpectNear(y, want, tolerance, UnaryName(f.op));
      }
    }
  }
}

TEST(Unary, BackwardAgainstDifferences) {
  Random random(2);
  for (const Function& f : kFunctions) {
    const Shape shape{4, 5, 6};
    const Tensor x = AnyTensor(random, shape, kFloat64, f.low, f.high);
    const Tensor dy = AnyTensor(random, shape, kFloat64);
    const Tensor y = Unary(f.op, x, f.a, f.b);
    const std::vector<double> at = Values(x), dys = Values(dy);
    std::vector<double> want, tolerance;
    for (size_t i = 0; i < at.size(); ++i) {
      const Real h = 1e-5L, v = at[i];
      const Real slope = (f.f(v + h, f.a, f.b) - f.f(v - h, f.a, f.b)) / (2 * h);
      want.push_back(static_cast<double>(slope * dys[i]));
      tolerance.push_back(1e-7 * (1 + std::abs(want.back())));
    }
    ExpectNear(UnaryBackward(f.op, dy, x, y, f.a, f.b), want, tolerance, UnaryBackwardName(f.op));
    // Backward gets only what NeededByBackward names.
    const Saved saved = NeededByBackward(f.op);
    const Tensor only_x = saved == Saved::kNothing ? Tensor() : x;
    ExpectNear(UnaryBackward(f.op, dy, only_x, {}, f.a, f.b), want, tolerance, "from x");
    if (saved == Saved::kY || saved == Saved::kXOrY)
      ExpectNear(UnaryBackward(f.op, dy, {}, y, f.a, f.b), want, tolerance, "from y");
    if (saved == Saved::kX) {
      EXPECT_THROW(UnaryBackward(f.op, dy, {}, y, f.a, f.b), std::invalid_argument);
    } else if (saved != Saved::kNothing) {
      EXPECT_THROW(UnaryBackward(f.op, dy, {}, {}, f.a, f.b), std::invalid_argument);
    }
    // 16-bit floats are computed in float32 and rounded once.
    const Tensor half = x.AsType(kBFloat16), dhalf = dy.AsType(kBFloat16);
    const Tensor wide = UnaryBackward(f.op, dhalf.AsType(kFloat32), half.AsType(kFloat32),
                                      Unary(f.op, half.AsType(kFloat32), f.a, f.b), f.a, f.b);
    if (saved == Saved::kX) {
      EXPECT_EQ(Values(UnaryBackward(f.op, dhalf, half, {}, f.a, f.b)),
                Values(wide.AsType(kBFloat16)));
    }
  }
}

std::vector<double> Slopes(UnaryOp op, std::vector<double> x, double a = 0, double b = 0) {
  const Shape shape{static_cast<int64_t>(x.size())};
  const Tensor in = FromValues(shape, x, kFloat64);
  return Values(UnaryBackward(op, Full(shape, 3, nullptr, kFloat64), in, {}, a, b));
}

TEST(Unary, SlopesAtKinksArePyTorchs) {
  using V = std::vector<double>;
  EXPECT_EQ(Slopes(UnaryOp::kRelu, {-1, 0, 1}), (V{0, 0, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kAbs, {-1, 0, 1}), (V{-3, 0, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kLeakyRelu, {-1, 0, 1}, 0.5), (V{1.5, 1.5, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kElu, {0, 1}, 0.5), (V{1.5, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kClip, {-2, -1, 0, 1, 2}, -1, 1), (V{0, 3, 3, 3, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kHardTanh, {-2, -1, 0, 1, 2}, -1, 1), (V{0, 0, 3, 0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kHardSigmoid, {-2, 0, 2}, 0.25, 0.5), (V{0, 0.75, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kSign, {-1, 0}), (V{0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kRound, {0.5, 2}), (V{0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kPowScalar, {0}, 1), (V{3}));
  EXPECT_EQ(Slopes(UnaryOp::kPowScalar, {0, 2}, 0), (V{0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kScalarPow, {0, 2}, 0), (V{0, 0}));
}

std::vector<double> Of(UnaryOp op, std::vector<double> x, DType dtype = kFloat32, double a = 0,
                       double b = 0) {
  return Values(Unary(op, FromValues({static_cast<int64_t>(x.size())}, x, dtype), a, b));
}

void ExpectSame(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "[" << i << "] is " << got[i] << ", expected " << want[i];
}

TEST(Unary, InfinitiesAndNan) {
  const std::vector<double> x{kInf, -kInf, kNan};
  ExpectSame(Of(UnaryOp::kRelu, x), {kInf, 0, kNan});
  ExpectSame(Of(UnaryOp::kClip, x, kFloat32, -2, 3), {3, -2, kNan});
  ExpectSame(Of(UnaryOp::kExp, x), {kInf, 0, kNan});
  ExpectSame(Of(UnaryOp::kLog, {kInf, 0, -1}), {kInf, -kInf, kNan});
  ExpectSame(Of(UnaryOp::kSqrt, {kInf, 0, -1}), {kInf, 0, kNan});
  ExpectSame(Of(UnaryOp::kSigmoid, x), {1, 0, kNan});
  ExpectSame(Of(UnaryOp::kSigmoid, {-200, 200}), {0, 1});
  ExpectSame(Of(UnaryOp::kSoftPlus, {-500, 500, kInf, kNan}), {0, 500, kInf, kNan});
  ExpectSame(Of(UnaryOp::kTanh, x), {1, -1, kNan});
  ExpectSame(Of(UnaryOp::kElu, x, kFloat32, 0.5), {kInf, -0.5, kNan});
  ExpectSame(Of(UnaryOp::kAbs, x), {kInf, kInf, kNan});
  ExpectSame(Of(UnaryOp::kSign, x), {1, -1, 0});
  ExpectSame(Of(UnaryOp::kReciprocal, {0, kInf}), {kInf, 0});
  ExpectSame(Of(UnaryOp::kRound, {0.5, 1.5, -0.5, 2.5}), {1, 2, -1, 3});
  ExpectSame(Of(UnaryOp::kRoundE, {0.5, 1.5, -0.5, 2.5}), {0, 2, 0, 2});
  ExpectSame(Of(UnaryOp::kPowScalar, {-8, 0}, kFloat32, 0.5), {kNan, 0});
  ExpectSame(Of(UnaryOp::kRelu, {1e5, -1}, kFloat16), {kInf, 0});
}

TEST(Unary, Integers) {
  using V = std::vector<double>;
  EXPECT_EQ(Of(UnaryOp::kAbs, {-3, 4}, kInt8), (V{3, 4}));
  EXPECT_EQ(Of(UnaryOp::kNegative, {-128, 5}, kInt8), (V{-128, -5}));  // wraps around
  EXPECT_EQ(Of(UnaryOp::kNegative, {-2147483648.0}, kInt32), (V{-2147483648.0}));
  EXPECT_EQ(Of(UnaryOp::kSquare, {16, 3}, kUInt8), (V{0, 9}));
  EXPECT_EQ(Of(UnaryOp::kAddScalar, {250}, kUInt8, 10), (V{4}));
  EXPECT_EQ(Of(UnaryOp::kMulScalar, {3, -4}, kInt64, -2), (V{-6, 8}));
  EXPECT_EQ(Of(UnaryOp::kScalarSub, {3}, kInt32, 1), (V{-2}));
  EXPECT_EQ(Of(UnaryOp::kScalarDiv, {2, -2, 0}, kInt32, 7), (V{3, -3, 0}));
  EXPECT_EQ(Of(UnaryOp::kPowScalar, {-3, 2}, kInt64, 3), (V{-27, 8}));
  ExpectError<std::invalid_argument>(
      [] {
        Of(UnaryOp::kPowScalar, {1, 2}, kInt32, -1);
      },
      "to the power -1");
  EXPECT_EQ(Of(UnaryOp::kScalarPow, {0, 10}, kInt32, 2), (V{1, 1024}));
  EXPECT_EQ(Of(UnaryOp::kClip, {-9, 0, 9}, kInt32, -1, 1), (V{-1, 0, 1}));
  EXPECT_EQ(Of(UnaryOp::kFloor, {-9, 0, 9}, kInt32), (V{-9, 0, 9}));
  EXPECT_EQ(Of(UnaryOp::kRelu, {-9, 9}, kInt64), (V{0, 9}));
  EXPECT_EQ(Of(UnaryOp::kSign, {-9, 0, 9}, kInt8), (V{-1, 0, 1}));
  EXPECT_EQ(Of(UnaryOp::kLogicalNot, {-9, 0, 9}, kInt8), (V{0, 1, 0}));
  EXPECT_EQ(Of(UnaryOp::kLogicalNot, {1, 0}, kBool), (V{0, 1}));
  EXPECT_EQ(Of(UnaryOp::kHardTanh, {-9, 0, 9}, kInt32, -1, 1), (V{-1, 0, 1}));
  for (const UnaryOp op : {UnaryOp::kNegative, UnaryOp::kScalarSub})
    ExpectError<TypeError>([&] { Of(op, {1, 0}, kBool, 1); }, "bools");
}

TEST(Unary, IntoTheSameAndOverlappingMemory) {
  Random random(3);
  const Tensor x = RandomTensor(random, {6, 7});
  const std::vector<double> want = Values(Unary(UnaryOp::kSigmoid, x));
  const Tensor out = RandomView(random, {6, 7});
  UnaryInto(UnaryOp::kSigmoid, x, out);
  EXPECT_EQ(Values(out), want);
  UnaryInto(UnaryOp::kSigmoid, x, x);
  EXPECT_EQ(Values(x), want);

  // A shifted view of the same memory is read before it is written.
  const Tensor t = FromValues({6}, {1, 2, 3, 4, 5, 6});
  UnaryInto(UnaryOp::kMulScalar, t.SliceAxis(0, 0, 5), t.SliceAxis(0, 1, 6), 10);
  EXPECT_EQ(Values(t), (std::vector<double>{1, 10, 20, 30, 40, 50}));
  const uint64_t version = t.version();
  UnaryInto(UnaryOp::kAddScalar, t, t, 1);
  EXPECT_GT(t.version(), version);
}

TEST(Unary, AnyNumberOfThreadsGivesTheSameBits) {
  Random random(4);
  const Tensor x = RandomTensor(random, {300, 401});
  const Tensor view = RandomView(random, {64, 65, 33}, kBFloat16);
  const int threads = NumThreads();
  std::vector<std::vector<double>> results[2];
  for (const int n : {1, 3}) {
    SetNumThreads(n);
    auto& result = results[n == 3];
    result.push_back(Values(Unary(UnaryOp::kGelu, x)));
    result.push_back(Values(Unary(UnaryOp::kRelu, x)));
    result.push_back(Values(Unary(UnaryOp::kTanh, view)));
    result.push_back(Values(UnaryBackward(UnaryOp::kSilu, x, x, {})));
  }
  SetNumThreads(threads);
  EXPECT_EQ(results[0], results[1]);
}

TEST(Unary, OpaqueLayouts) {
  Random random(5);
  for (const Function& f : kFunctions) {
    const Tensor plain = RandomTensor(random, {2, 3, 5}, kFloat32, f.low, f.high);
    const Tensor x = PaddedLayout::Of(plain);
    const std::vector<double> want = Values(Unary(f.op, plain, f.a, f.b));
    const Tensor y = Unary(f.op, x, f.a, f.b);
    EXPECT_EQ(Values(y), want);
    EXPECT_EQ(y.is_blocked(), KeepsZero(f.op, f.a, f.b)) << UnaryName(f.op);
    if (y.is_blocked()) {
      EXPECT_TRUE(IsPaddedWithZeros(y)) << UnaryName(f.op);
    }
    EXPECT_TRUE(IsPaddedWithZeros(x)) << "the argument stays as it was";

    // dy is opaque and x plain, so one of them is reordered.
    const Tensor dy = RandomTensor(random, {2, 3, 5});
    const Tensor saved_y = Unary(f.op, plain, f.a, f.b);
    const Tensor dx = UnaryBackward(f.op, PaddedLayout::Of(dy), plain, saved_y, f.a, f.b);
    EXPECT_EQ(Values(dx), Values(UnaryBackward(f.op, dy, plain, saved_y, f.a, f.b)));
    if (dx.is_blocked()) {
      EXPECT_TRUE(IsPaddedWithZeros(dx)) << UnaryBackwardName(f.op);
    }

    // In place.
    UnaryInto(f.op, x, x, f.a, f.b);
    EXPECT_EQ(Values(x), want);
    if (x.is_blocked()) {
      EXPECT_TRUE(IsPaddedWithZeros(x)) << UnaryName(f.op);
    }
    const Tensor out = PaddedLayout::Of(dy);
    UnaryInto(f.op, plain, out, f.a, f.b);
    EXPECT_EQ(Values(out), want);
    const Tensor target = dy.Clone();
    UnaryInto(f.op, PaddedLayout::Of(plain), target, f.a, f.b);
    EXPECT_EQ(Values(target), want);
  }
  const Tensor x = PaddedLayout::Of(Full({4}, 2));
  EXPECT_FALSE(Unary(UnaryOp::kMulScalar, x, kInf).is_blocked());
  EXPECT_FALSE(Unary(UnaryOp::kClip, x, 1, 3).is_blocked());
  EXPECT_TRUE(Unary(UnaryOp::kAddScalar, x, 0).is_blocked());
}

TEST(Unary, Errors) {
  const Tensor ints(Shape{2}, nullptr, kInt32);
  const Tensor floats(Shape{2});
  ExpectError<std::invalid_argument>([&] { Unary(UnaryOp::kRelu, Tensor()); }, "[Relu] x");
  ExpectError<TypeError>([&] { Unary(UnaryOp::kExp, ints); }, "[Exp] x must be of a float type");
  ExpectError<TypeError>([&] { Unary(UnaryOp::kAddScalar, ints, 0.5); }, "whole numbers");
  ExpectError<TypeError>([&] { UnaryBackward(UnaryOp::kRelu, ints, ints, {}); }, "[ReluBackward]");
  ExpectError<std::invalid_argument>(
      [&] { UnaryBackward(UnaryOp::kRelu, floats, Tensor(Shape{3}), {}); }, "(3,)");
  ExpectError<std::invalid_argument>([&] { UnaryInto(UnaryOp::kExp, floats, Tensor(Shape{3})); },
                                     "out");
  ExpectError<TypeError>([&] { UnaryInto(UnaryOp::kExp, floats, ints); }, "out");
  ExpectError<std::invalid_argument>([&] { Unary(static_cast<UnaryOp>(99), floats); }, "99");
  ExpectError<std::invalid_argument>(
      [&] { UnaryBackward(UnaryOp::kLeakyRelu, floats, {}, floats, -1); }, "x is an empty");
}

}  // namespace
}  // namespace singa
