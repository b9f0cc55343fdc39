#include <bit>
#include <limits>
#include <numbers>

#include "model/operation/elementwise/spec.h"
#include "model/operation/padded_layout.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

struct Call {
  UnaryOp op;
  double low, a, b;  // x in [low, low + 0.7]
};

/// Each function where it is smooth, clips also with 0 inside.
std::vector<Call> EveryCall() {
  std::vector<Call> calls = {{UnaryOp::kClip, -0.35, -0.3, 0.2},
                             {UnaryOp::kHardTanh, -0.35, -0.3, 0.2}};
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
    const auto op = static_cast<UnaryOp>(i);
    const double a = op == UnaryOp::kPolyGamma ? 2 : 0.5;  // an order
    calls.push_back({op, op == UnaryOp::kAcosh ? 1.1 : 0.2, a, 1.5});
  }
  return calls;
}

TEST(Unary, BackwardGetsOnlyWhatIsNeeded) {
  Random random(2);
  for (const Call& f : EveryCall()) {
    const Tensor x = RandomTensor(random, {4, 5, 6}, kFloat64, f.low, f.low + 0.7);
    const Tensor dy = RandomTensor(random, {4, 5, 6}, kFloat64), y = Unary(f.op, x, f.a, f.b);
    const Vector want = Values(UnaryBackward(f.op, dy, x, y, f.a, f.b));
    const Vector close(want.size(), 1e-12);
    const Saved saved = NeededByBackward(f.op);
    const Tensor only_x = saved == Saved::kNothing ? Tensor() : x;
    ExpectNear(UnaryBackward(f.op, dy, only_x, {}, f.a, f.b), want, close, UnaryName(f.op));
    if (saved == Saved::kY || saved == Saved::kXOrY)
      ExpectNear(UnaryBackward(f.op, dy, {}, y, f.a, f.b), want, close, UnaryName(f.op));
    if (saved == Saved::kX) {
      EXPECT_THROW(UnaryBackward(f.op, dy, {}, y, f.a, f.b), std::invalid_argument);
    } else if (saved != Saved::kNothing) {
      EXPECT_THROW(UnaryBackward(f.op, dy, {}, {}, f.a, f.b), std::invalid_argument);
    }
  }
}

Vector Slopes(UnaryOp op, Vector x, double a = 0, double b = 0) {
  const Shape shape{static_cast<int64_t>(x.size())};
  const Tensor in = FromValues(shape, x, kFloat64);
  return Values(UnaryBackward(op, Full(shape, 3, nullptr, kFloat64), in, {}, a, b));
}

TEST(Unary, SlopesAtKinksArePyTorchs) {
  EXPECT_EQ(Slopes(UnaryOp::kRelu, {-1, 0, 1}), (Vector{0, 0, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kAbs, {-1, 0, 1}), (Vector{-3, 0, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kLeakyRelu, {-1, 0, 1}, 0.5), (Vector{1.5, 1.5, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kElu, {0, 1}, 0.5), (Vector{1.5, 3}));
  EXPECT_EQ(Slopes(UnaryOp::kClip, {-2, -1, 0, 1, 2}, -1, 1), (Vector{0, 3, 3, 3, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kHardTanh, {-2, -1, 0, 1, 2}, -1, 1), (Vector{0, 0, 3, 0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kHardSigmoid, {-2, 0, 2}, 0.25, 0.5), (Vector{0, 0.75, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kSign, {-1, 0}), (Vector{0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kRound, {0.5, 2}), (Vector{0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kPowScalar, {0}, 1), (Vector{3}));
  EXPECT_EQ(Slopes(UnaryOp::kPowScalar, {0, 2}, 0), (Vector{0, 0}));
  EXPECT_EQ(Slopes(UnaryOp::kScalarPow, {0, 2}, 0), (Vector{0, 0}));
}

Vector Of(UnaryOp op, Vector x, DType dtype = kFloat32, double a = 0, double b = 0) {
  return Values(Unary(op, FromValues({static_cast<int64_t>(x.size())}, x, dtype), a, b));
}

void ExpectSame(const Vector& got, const Vector& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "[" << i << "] is " << got[i] << ", expected " << want[i];
}

TEST(Unary, InfinitiesAndNan) {
  const Vector x{kInf, -kInf, kNan};
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
  ExpectSame(Of(UnaryOp::kCelu, x, kFloat32, 0.5), {kInf, -0.5, kNan});
  ExpectSame(Of(UnaryOp::kLogSigmoid, {-500, kInf, -kInf, kNan}), {-500, 0, -kInf, kNan});
  ExpectSame(Of(UnaryOp::kLog2, {8, 0, -1, kInf}), {3, -kInf, kNan, kInf});
  ExpectSame(Of(UnaryOp::kLog10, {1000, 0, -1, kInf}), {3, -kInf, kNan, kInf});
  ExpectSame(Of(UnaryOp::kExp2, {10, kInf, -kInf, kNan}), {1024, kInf, 0, kNan});
  ExpectSame(Of(UnaryOp::kErfc, x), {0, 2, kNan});
  ExpectSame(Of(UnaryOp::kErfInverse, {0, 1, -1, 2}), {0, kInf, -kInf, kNan});
  ExpectSame(Of(UnaryOp::kLogGamma, x), {kInf, kInf, kNan});
  ExpectSame(Of(UnaryOp::kTrunc, {-1.5, 1.7, kInf, kNan}), {-1, 1, kInf, kNan});
  ExpectSame(Of(UnaryOp::kAbs, x), {kInf, kInf, kNan});
  ExpectSame(Of(UnaryOp::kSign, x), {1, -1, 0});
  ExpectSame(Of(UnaryOp::kReciprocal, {0, kInf}), {kInf, 0});
  ExpectSame(Of(UnaryOp::kRound, {0.5, 1.5, -0.5, 2.5}), {1, 2, -1, 3});
  ExpectSame(Of(UnaryOp::kRoundE, {0.5, 1.5, -0.5, 2.5}), {0, 2, 0, 2});
  ExpectSame(Of(UnaryOp::kPowScalar, {-8, 0}, kFloat32, 0.5), {kNan, 0});
  ExpectSame(Of(UnaryOp::kRelu, {1e5, -1}, kFloat16), {kInf, 0});
}

/// Numbers of both signs and of all sizes, to the length of some vectors and a rest.
Tensor NumbersOfAllSizes() {
  constexpr int64_t kCount = 64 * 1024 + 13;
  Tensor x({kCount});
  auto* data = static_cast<float*>(x.raw_data());
  for (int64_t i = 0; i < kCount; ++i) {
    const auto bits = static_cast<uint32_t>(i * 65521);
    const auto value = std::bit_cast<float>(bits);
    data[i] = std::isfinite(value) ? value : 1;
  }
  return x;
}

/// The loops of functions with a vector form, on the best instruction set, against float64: within
/// two units in the last place.
TEST(Unary, LoopsOfVectorsAreExact) {
  struct Case {
    UnaryOp op;
    double (*exact)(double);
    double a = 0;
  };
  const Case cases[] = {
      {UnaryOp::kSin, std::sin},
      {UnaryOp::kCos, std::cos},
      {UnaryOp::kTan, std::tan},
      {UnaryOp::kAsin, std::asin},
      {UnaryOp::kAcos, std::acos},
      {UnaryOp::kAtan, std::atan},
      {UnaryOp::kSinh, std::sinh},
      {UnaryOp::kCosh, std::cosh},
      {UnaryOp::kAsinh, std::asinh},
      {UnaryOp::kAcosh, std::acosh},
      {UnaryOp::kAtanh, std::atanh},
      {UnaryOp::kExp2, std::exp2},
      {UnaryOp::kLog2, std::log2},
      {UnaryOp::kLog10, std::log10},
      {UnaryOp::kExpm1, std::expm1},
      {UnaryOp::kLog1p, std::log1p},
      {UnaryOp::kElu, [](double x) { return x < 0 ? 0.5 * std::expm1(x) : x; }, 0.5},
      {UnaryOp::kPowScalar, [](double x) { return std::pow(x, -2.5); }, -2.5},
      {UnaryOp::kPowScalar, [](double x) { return std::pow(x, 3); }, 3},
      {UnaryOp::kScalarPow, [](double x) { return std::pow(0.75, x); }, 0.75},
  };
  const Tensor x = NumbersOfAllSizes();
  const Vector xs = Values(x);
  for (const Case& c : cases) {
    const Vector got = Values(Unary(c.op, x, c.a));
    for (size_t i = 0; i < xs.size(); ++i) {
      const double want = c.exact(xs[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got[i])) << UnaryName(c.op) << " of " << xs[i];
      } else if (std::abs(want) > std::numeric_limits<float>::max()) {
        ASSERT_EQ(std::abs(got[i]), kInf) << UnaryName(c.op) << " of " << xs[i];
      } else {
        const double size = std::max(std::abs(want), 0x1p-126);
        ASSERT_LE(std::abs(got[i] - want), std::ldexp(2.0, std::ilogb(size) - 23))
            << UnaryName(c.op) << " of " << xs[i];
      }
    }
  }
}

/// Sin and cos of far arguments are the C library's, in the result's own memory, too.
TEST(Unary, FarAnglesAreTheLibrarys) {
  Random random(7);
  Vector values(1000), dys(1000);
  for (double& v : values) v = static_cast<float>(random.Real(-10, 10));
  for (double& v : dys) v = static_cast<float>(random.Real(-10, 10));
  values[3] = values[700] = 1e30f, values[999] = -0x1p20f, values[500] = -kInf;
  for (const UnaryOp op : {UnaryOp::kSin, UnaryOp::kCos}) {
    const Tensor x = FromValues({1000}, values), dy = FromValues({1000}, dys);
    const Vector dx = Values(UnaryBackward(op, dy, x, {}));
    UnaryInto(op, x, x);
    const Vector got = Values(x);
    const auto f = [&](double v) {
      const auto angle = static_cast<float>(v);
      return op == UnaryOp::kSin ? std::sin(angle) : std::cos(angle);
    };
    for (const size_t i : {3, 700, 999}) {
      EXPECT_EQ(got[i], f(values[i])) << UnaryName(op) << i;
      const auto angle = static_cast<float>(values[i]), slope = static_cast<float>(dys[i]);
      EXPECT_EQ(dx[i], op == UnaryOp::kSin ? slope * std::cos(angle) : -slope * std::sin(angle));
    }
    EXPECT_TRUE(std::isnan(got[500]));
    EXPECT_NEAR(got[4], f(values[4]), 1e-6);
  }
}

TEST(Unary, Integers) {
  EXPECT_EQ(Of(UnaryOp::kAbs, {-3, 4}, kInt8), (Vector{3, 4}));
  EXPECT_EQ(Of(UnaryOp::kNegative, {-128, 5}, kInt8), (Vector{-128, -5}));  // wraps around
  EXPECT_EQ(Of(UnaryOp::kNegative, {-2147483648.0}, kInt32), (Vector{-2147483648.0}));
  EXPECT_EQ(Of(UnaryOp::kSquare, {16, 3}, kUInt8), (Vector{0, 9}));
  EXPECT_EQ(Of(UnaryOp::kAddScalar, {250}, kUInt8, 10), (Vector{4}));
  EXPECT_EQ(Of(UnaryOp::kMulScalar, {3, -4}, kInt64, -2), (Vector{-6, 8}));
  EXPECT_EQ(Of(UnaryOp::kScalarSub, {3}, kInt32, 1), (Vector{-2}));
  EXPECT_EQ(Of(UnaryOp::kScalarDiv, {2, -2, 0}, kInt32, 7), (Vector{3, -3, 0}));
  EXPECT_EQ(Of(UnaryOp::kPowScalar, {-3, 2}, kInt64, 3), (Vector{-27, 8}));
  EXPECT_ERROR(std::invalid_argument, "to the power -1",
               Of(UnaryOp::kPowScalar, {1, 2}, kInt32, -1));
  for (const double order : {-1.0, 0.5, 170.0})
    EXPECT_ERROR(std::invalid_argument, "whole number of 0 to 169",
                 Of(UnaryOp::kPolyGamma, {1, 2}, kFloat32, order));
  EXPECT_EQ(Of(UnaryOp::kScalarPow, {0, 10}, kInt32, 2), (Vector{1, 1024}));
  EXPECT_EQ(Of(UnaryOp::kClip, {-9, 0, 9}, kInt32, -1, 1), (Vector{-1, 0, 1}));
  EXPECT_EQ(Of(UnaryOp::kFloor, {-9, 0, 9}, kInt32), (Vector{-9, 0, 9}));
  EXPECT_EQ(Of(UnaryOp::kTrunc, {-9, 0, 9}, kInt64), (Vector{-9, 0, 9}));
  EXPECT_EQ(Of(UnaryOp::kRelu, {-9, 9}, kInt64), (Vector{0, 9}));
  EXPECT_EQ(Of(UnaryOp::kSign, {-9, 0, 9}, kInt8), (Vector{-1, 0, 1}));
  EXPECT_EQ(Of(UnaryOp::kLogicalNot, {-9, 0, 9}, kInt8), (Vector{0, 1, 0}));
  EXPECT_EQ(Of(UnaryOp::kLogicalNot, {1, 0}, kBool), (Vector{0, 1}));
  EXPECT_EQ(Of(UnaryOp::kHardTanh, {-9, 0, 9}, kInt32, -1, 1), (Vector{-1, 0, 1}));
  for (const UnaryOp op : {UnaryOp::kNegative, UnaryOp::kScalarSub})
    EXPECT_ERROR(TypeError, "bools", Of(op, {1, 0}, kBool, 1));
}

TEST(Unary, IntoTheSameAndOverlappingMemory) {
  Random random(3);
  const Tensor x = RandomTensor(random, {6, 7});
  const Vector want = Values(Unary(UnaryOp::kSigmoid, x));
  const Tensor out = RandomView(random, {6, 7});
  UnaryInto(UnaryOp::kSigmoid, x, out);
  EXPECT_EQ(Values(out), want);
  UnaryInto(UnaryOp::kSigmoid, x, x);
  EXPECT_EQ(Values(x), want);

  // A shifted view of the same memory is read before it is written.
  const Tensor t = FromValues({6}, {1, 2, 3, 4, 5, 6});
  UnaryInto(UnaryOp::kMulScalar, t.SliceAxis(0, 0, 5), t.SliceAxis(0, 1, 6), 10);
  EXPECT_EQ(Values(t), (Vector{1, 10, 20, 30, 40, 50}));
  const uint64_t version = t.version();
  UnaryInto(UnaryOp::kAddScalar, t, t, 1);
  EXPECT_GT(t.version(), version);
}

TEST(Unary, AnyNumberOfThreadsGivesTheSameBits) {
  Random random(4);
  const Tensor x = RandomTensor(random, {300, 401});
  const Tensor view = RandomView(random, {64, 65, 33}, kBFloat16);
  SameOnThreads({3}, [&] {
    return ValuesOf({Unary(UnaryOp::kGelu, x), Unary(UnaryOp::kRelu, x),
                     Unary(UnaryOp::kTanh, view), UnaryBackward(UnaryOp::kSilu, x, x, {})});
  });
}

TEST(Unary, OpaqueLayouts) {
  Random random(5);
  for (const Call& f : EveryCall()) {
    const Tensor plain = RandomTensor(random, {2, 3, 5}, kFloat32, f.low, f.low + 0.7);
    const Tensor x = PaddedLayout::Of(plain);
    const Vector want = Values(Unary(f.op, plain, f.a, f.b));
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

}  // namespace
}  // namespace singa::test
