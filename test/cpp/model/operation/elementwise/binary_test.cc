#include "core/layout/blocked_layout.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/padded_layout.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

/// All functions that floats have.
std::vector<BinaryOp> EveryOp() {
  std::vector<BinaryOp> ops;
  for (int op = 0; op < static_cast<int>(BinaryOp::kBitAnd); ++op)
    ops.push_back(static_cast<BinaryOp>(op));
  return ops;
}

bool HasGradient(BinaryOp op) {
  return op <= BinaryOp::kMod || op == BinaryOp::kPRelu || op >= BinaryOp::kFmod;
}

TEST(Binary, GradientsHaveTheTypesOfTheirArguments) {
  Random random(3);
  const Tensor a = RandomTensor(random, {64, 50}, kBFloat16, 0.5, 2);
  const Tensor b = RandomTensor(random, {50}, kFloat32, 0.5, 2);
  const Tensor dy = RandomTensor(random, {64, 50}, kFloat32, 0.5, 2);
  for (const BinaryOp op : {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv}) {
    const std::vector<Tensor> d = BinaryBackward(op, dy, a, b, {}, true, true);
    EXPECT_EQ(d[0].data_type(), kBFloat16);
    EXPECT_EQ(d[1].data_type(), kFloat32);
  }
  // The sum over rows of a 16-bit gradient is rounded only once, at the end.
  const Tensor b16 = b.AsType(kBFloat16), dy16 = dy.AsType(kBFloat16);
  const Vector va = Values(a), vdy = Values(dy16);
  Vector want(50), tolerance(50);
  for (size_t i = 0; i < va.size(); ++i) {
    want[i % 50] += va[i] * vdy[i];
    tolerance[i % 50] += Epsilon(kFloat32) * std::abs(va[i] * vdy[i]);
  }
  ExpectNear(BinaryBackward(BinaryOp::kMul, dy16, a, b16, {}, false, true)[1], want, tolerance,
             "sum of products");
}

Vector Of(BinaryOp op, const Vector& a, const Vector& b, DType dtype = kFloat32) {
  const Shape shape{static_cast<int64_t>(a.size())};
  return Values(Binary(op, FromValues(shape, a, dtype), FromValues(shape, b, dtype)));
}

void ExpectSame(const Vector& got, const Vector& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])))
        << "[" << i << "] is " << got[i] << ", expected " << want[i];
}

TEST(Binary, InfinitiesNanAndSigns) {
  ExpectSame(Of(BinaryOp::kMin, {kNan, 1, kInf, -kInf}, {1, kNan, 2, 2}), {kNan, kNan, 2, -kInf});
  ExpectSame(Of(BinaryOp::kMax, {kNan, 1, kInf, -kInf}, {1, kNan, 2, 2}), {kNan, kNan, kInf, 2});
  ExpectSame(Of(BinaryOp::kDiv, {1, -1, 0}, {0, 0, 0}), {kInf, -kInf, kNan});
  ExpectSame(Of(BinaryOp::kMod, {5, -5, 5, -5, 1}, {3, 3, -3, -3, 0}), {2, 1, -1, -2, kNan});
  ExpectSame(Of(BinaryOp::kFloorDiv, {1, -1, 0, 5, kInf, 1}, {0, 0, 0, kInf, 2, kNan}),
             {kInf, -kInf, kNan, 0, kNan, kNan});
  ExpectSame(Of(BinaryOp::kFloorDiv, {1, 1, -1, 7.5}, {0.1, -0.1, 0.1, -2.5}), {9, -10, -10, -3});
  ExpectSame(Of(BinaryOp::kFmod, {5, -5, 5, -5, 1, 5, kInf}, {3, 3, -3, -3, 0, kInf, 3}),
             {2, -2, 2, -2, kNan, 5, kNan});
  ExpectSame(Of(BinaryOp::kHypot, {3 * 0x1p100, kInf, kNan, 0}, {4 * 0x1p100, kNan, 1, -0.0}),
             {5 * 0x1p100, kInf, kNan, 0});
  ExpectSame(Of(BinaryOp::kCopySign, {1, -2, 3, kInf}, {-0.0, 5, -kInf, -1}), {-1, 2, -3, -kInf});
  ExpectSame(Of(BinaryOp::kLogAddExp, {kInf, -kInf, -kInf, kInf, kNan, 1000, -1000},
                {kInf, -kInf, 3, -kInf, kInf, -1000, -kInf}),
             {kInf, -kInf, 3, kInf, kNan, 1000, -1000});
  ExpectSame(Of(BinaryOp::kPow, {-2, -2, 0, 0, kNan}, {3, 0.5, 0, -1, 0}), {-8, kNan, 1, kInf, 1});
  ExpectSame(Of(BinaryOp::kEqual, {kNan, kInf}, {kNan, kInf}), {0, 1});
  ExpectSame(Of(BinaryOp::kNotEqual, {kNan, kInf}, {kNan, kInf}), {1, 0});
  ExpectSame(Of(BinaryOp::kAnd, {kNan, 0.5, 0}, {1, 0.25, kNan}), {1, 1, 0});
  ExpectSame(Of(BinaryOp::kAdd, {kInf, kInf}, {-kInf, 1}), {kNan, kInf});
}

TEST(Binary, Integers) {
  EXPECT_EQ(Of(BinaryOp::kAdd, {127, 1}, {1, 1}, kInt8), (Vector{-128, 2}));  // wraps around
  EXPECT_EQ(Of(BinaryOp::kAdd, {2147483647.0}, {1}, kInt32), (Vector{-2147483648.0}));
  EXPECT_EQ(Of(BinaryOp::kSub, {0}, {1}, kUInt8), (Vector{255}));
  EXPECT_EQ(Of(BinaryOp::kMul, {3000000000.0}, {3}, kInt64), (Vector{9e9}));
  EXPECT_EQ(Of(BinaryOp::kDiv, {7, -7, -2147483648.0}, {2, 2, -1}, kInt32),
            (Vector{3, -3, -2147483648.0}));
  EXPECT_EQ(Of(BinaryOp::kFloorDiv, {7, -7, 7, -8, -2147483648.0}, {2, 2, -2, 4, -1}, kInt32),
            (Vector{3, -4, -4, -2, -2147483648.0}));
  EXPECT_EQ(Of(BinaryOp::kMod, {7, -7, 7, -2147483648.0}, {3, 3, -3, -1}, kInt32),
            (Vector{1, 2, -2, 0}));
  EXPECT_EQ(Of(BinaryOp::kFmod, {7, -7, 7, -2147483648.0}, {3, 3, -3, -1}, kInt32),
            (Vector{1, -1, 1, 0}));
  EXPECT_EQ(Of(BinaryOp::kBitAnd, {12, -1, 255}, {10, 7, 128}, kInt32), (Vector{8, 7, 128}));
  EXPECT_EQ(Of(BinaryOp::kBitOr, {12, -8}, {10, 7}, kInt8), (Vector{14, -1}));
  EXPECT_EQ(Of(BinaryOp::kBitXor, {1, 1, 0}, {1, 0, 0}, kBool), (Vector{0, 1, 0}));
  EXPECT_EQ(Of(BinaryOp::kShiftLeft, {1, 3, 1, 1}, {31, 1, 32, -1}, kInt32),
            (Vector{-2147483648.0, 6, 0, 0}));
  EXPECT_EQ(Of(BinaryOp::kShiftLeft, {127, 1, 1}, {1, 7, 8}, kInt8), (Vector{-2, -128, 0}));
  EXPECT_EQ(Of(BinaryOp::kShiftRight, {-5, 5, -5, 5, -1}, {1, 1, 64, 64, -1}, kInt64),
            (Vector{-3, 2, -1, 0, -1}));
  EXPECT_EQ(Of(BinaryOp::kGcd, {12, -8, 0, 0, -2147483648.0}, {18, 6, -5, 0, -1}, kInt32),
            (Vector{6, 2, 5, 0, 1}));
  EXPECT_EQ(Of(BinaryOp::kLcm, {4, -6, 0, 100}, {6, 4, 7, 3}, kInt8), (Vector{12, 12, 0, 44}));
  EXPECT_EQ(Of(BinaryOp::kPow, {3, -2, 0}, {4, 3, 0}, kInt64), (Vector{81, -8, 1}));
  EXPECT_EQ(Of(BinaryOp::kMin, {3, -2}, {4, -3}, kInt32), (Vector{3, -3}));
  EXPECT_EQ(Of(BinaryOp::kLess, {3, 4}, {4, 4}, kUInt8), (Vector{1, 0}));
  EXPECT_EQ(Of(BinaryOp::kXor, {3, 0, 2}, {4, 1, 0}, kInt32), (Vector{0, 1, 1}));
  EXPECT_EQ(Of(BinaryOp::kAdd, {0, 1, 1}, {0, 0, 1}, kBool), (Vector{0, 1, 1}));
  EXPECT_EQ(Of(BinaryOp::kAnd, {0, 1, 1}, {0, 0, 1}, kBool), (Vector{0, 0, 1}));
  // A comparison with a fraction compares floats.
  const Tensor ones = Full({2}, 1, nullptr, kInt32);
  EXPECT_EQ(Values(Binary(BinaryOp::kLess, ones, FromValues({2}, {1.5, 0.5}))), (Vector{1, 0}));
}

TEST(Binary, IntegersWithoutAQuotientOrPower) {
  for (const DType dtype : {kInt8, kUInt8, kInt32, kInt64})
    for (const BinaryOp op : {BinaryOp::kDiv, BinaryOp::kMod, BinaryOp::kFloorDiv, BinaryOp::kFmod})
      EXPECT_ERROR(std::domain_error, "divided by zero", Of(op, {1, 2}, {1, 0}, dtype));
  for (const DType dtype : {kInt8, kInt32, kInt64})
    EXPECT_ERROR(std::invalid_argument, "to the power -1",
                 Of(BinaryOp::kPow, {1, 2}, {1, -1}, dtype));
  EXPECT_ERROR(TypeError, "bools", Of(BinaryOp::kSub, {1, 0}, {1, 1}, kBool));
  EXPECT_ERROR(TypeError, "needs integers or bools", Of(BinaryOp::kBitAnd, {1, 0}, {1, 1}));
  EXPECT_ERROR(TypeError, "a float type", Of(BinaryOp::kHypot, {1, 0}, {1, 1}, kInt32));
}

TEST(Binary, ATensorWithoutAxesDecidesOnTheKindOnly) {
  const Tensor bytes = FromValues({2}, {1, 100}, kInt8);
  const Tensor sum = Binary(BinaryOp::kAdd, bytes, Full({}, 300, nullptr, kInt64));
  EXPECT_EQ(sum.data_type(), kInt8);
  EXPECT_EQ(Values(sum), (Vector{45, -112}));  // wraps around
  EXPECT_EQ(ResultType(Full({}, 1, nullptr, kFloat64), bytes), kFloat64);
  EXPECT_EQ(ResultType(Full({}, 1, nullptr, kFloat64), Full({1}, 1, nullptr, kFloat16)), kFloat16);
  EXPECT_EQ(ResultType(Full({}, 1, nullptr, kInt8), Full({}, 1, nullptr, kInt64)), kInt64);
  // Comparisons do not convert it.
  const Tensor less = Compare(BinaryOp::kLess, bytes, Full({}, 300, nullptr, kInt64));
  EXPECT_EQ(less.data_type(), kBool);
  EXPECT_EQ(Values(less), (Vector{1, 1}));
  EXPECT_ERROR(std::invalid_argument, "no comparison", Compare(BinaryOp::kAdd, bytes, bytes));
}

Vector Slopes(BinaryOp op, int argument, const Vector& a, const Vector& b) {
  const Shape shape{static_cast<int64_t>(a.size())};
  const Tensor ta = FromValues(shape, a), tb = FromValues(shape, b);
  return Values(BinaryBackward(op, Full(shape, 4), ta, tb, {}, true, true)[argument]);
}

TEST(Binary, SlopesAtTiesArePyTorchs) {
  EXPECT_EQ(Slopes(BinaryOp::kMax, 0, {1, 2, 3}, {2, 2, 2}), (Vector{0, 2, 4}));
  EXPECT_EQ(Slopes(BinaryOp::kMax, 1, {1, 2, 3}, {2, 2, 2}), (Vector{4, 2, 0}));
  EXPECT_EQ(Slopes(BinaryOp::kMin, 0, {1, 2, 3}, {2, 2, 2}), (Vector{4, 2, 0}));
  EXPECT_EQ(Slopes(BinaryOp::kMin, 1, {1, 2, 3}, {2, 2, 2}), (Vector{0, 2, 4}));
  EXPECT_EQ(Slopes(BinaryOp::kPRelu, 0, {-1, 0, 1}, {0.5, 0.5, 0.5}), (Vector{2, 2, 4}));
  EXPECT_EQ(Slopes(BinaryOp::kPRelu, 1, {-1, 0, 1}, {0.5, 0.5, 0.5}), (Vector{-4, 0, 0}));
  EXPECT_EQ(Slopes(BinaryOp::kPow, 0, {0, 0, 0, -2}, {0, 1, 2, 2}), (Vector{0, 4, 0, -16}));
  EXPECT_EQ(Slopes(BinaryOp::kPow, 1, {0, 0}, {0, 2}), (Vector{0, 0}));
  EXPECT_EQ(Slopes(BinaryOp::kMod, 1, {1, -1, 7}, {0.1, 0.1, 2}), (Vector{-36, 40, -12}));
}

TEST(Binary, Into) {
  Random random(4);
  const Tensor a = RandomTensor(random, {5, 6});
  const Tensor b = RandomTensor(random, {6});
  const Vector want = Values(Binary(BinaryOp::kMul, a, b));
  const Tensor out = RandomView(random, {5, 6}, kFloat64);
  BinaryInto(BinaryOp::kMul, a, b, out);
  EXPECT_EQ(Values(out), want);
  BinaryInto(BinaryOp::kMul, a, b, a);
  EXPECT_EQ(Values(a), want);
  // An operand that is broadcast from the output's memory is read before the output is written.
  const Tensor t = FromValues({3, 2}, {1, 2, 3, 4, 5, 6});
  BinaryInto(BinaryOp::kSub, t, t.SliceAxis(0, 0, 1), t);
  EXPECT_EQ(Values(t), (Vector{0, 0, 2, 2, 4, 4}));
  const Tensor sums = FromValues({4}, {1, 2, 3, 4});
  BinaryInto(BinaryOp::kAdd, sums.SliceAxis(0, 0, 3), sums.SliceAxis(0, 1, 4),
             sums.SliceAxis(0, 1, 4));
  EXPECT_EQ(Values(sums), (Vector{1, 3, 5, 7}));
  // Sums of 16-bit operands into the wider type and vice versa; truth values into bool.
  const Tensor wide = Full({3}, 1), half = Full({3}, 0.5, nullptr, kBFloat16);
  BinaryInto(BinaryOp::kAdd, wide, half, wide);
  BinaryInto(BinaryOp::kAdd, half, wide, half);
  EXPECT_EQ(Values(wide), (Vector{1.5, 1.5, 1.5}));
  EXPECT_EQ(Values(half), (Vector{2, 2, 2}));
  const Tensor truth(Shape{3}, nullptr, kBool);
  BinaryInto(BinaryOp::kLess, wide, half, truth);
  EXPECT_EQ(Values(truth), (Vector{1, 1, 1}));
}

TEST(Binary, AnyNumberOfThreadsGivesTheSameBits) {
  Random random(5);
  const Tensor a = RandomTensor(random, {37, 41, 59});
  const Tensor b = RandomView(random, {41, 59});
  for (const BinaryOp op : {BinaryOp::kMul, BinaryOp::kMod})
    SameOnThreads({3}, [&] {
      return std::pair(Values(Binary(op, a, b)),
                       ValuesOf(BinaryBackward(op, a, a, b, {}, true, true)));
    });
}

TEST(Binary, OpaqueLayouts) {
  Random random(6);
  for (const BinaryOp op : EveryOp()) {
    const Tensor a = RandomTensor(random, {2, 3, 5}, kFloat32, 0.3, 3);
    const Tensor b = RandomTensor(random, {2, 3, 5}, kFloat32, 0.3, 3);
    const Tensor row = RandomTensor(random, {5}, kFloat32, 0.3, 3);
    const Tensor pa = PaddedLayout::Of(a), pb = PaddedLayout::Of(b);
    const Vector want = Values(Binary(op, a, b));
    for (const Tensor& other : {pb, b}) {
      const Tensor c = Binary(op, pa, other);
      EXPECT_EQ(Values(c), want);
      EXPECT_EQ(c.is_blocked(), KeepsZero(op)) << BinaryName(op);
      if (c.is_blocked()) {
        EXPECT_TRUE(IsPaddedWithZeros(c)) << BinaryName(op);
      }
    }
    EXPECT_EQ(Values(Binary(op, pa, row)), Values(Binary(op, a, row)));
    EXPECT_TRUE(IsPaddedWithZeros(pa)) << "the argument stays as it was";
    if (HasGradient(op)) {
      const Tensor dy = RandomTensor(random, {2, 3, 5});
      const std::vector<Tensor> got =
          BinaryBackward(op, PaddedLayout::Of(dy), pa, pb, {}, true, true);
      const std::vector<Tensor> plain = BinaryBackward(op, dy, a, b, {}, true, true);
      for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(Values(got[i]), Values(plain[i])) << BinaryBackwardName(op);
        if (got[i].is_blocked()) {
          EXPECT_TRUE(IsPaddedWithZeros(got[i])) << BinaryBackwardName(op);
        }
      }
      const std::vector<Tensor> rows =
          BinaryBackward(op, PaddedLayout::Of(dy), pa, row, {}, true, true);
      EXPECT_EQ(Values(rows[1]), Values(BinaryBackward(op, dy, a, row, {}, true, true)[1]));
    }
    // In place: opaque to opaque, opaque to plain, and plain to opaque.
    BinaryInto(op, pa, pb, pa);
    EXPECT_EQ(Values(pa), want);
    EXPECT_EQ(pa.is_blocked(), KeepsZero(op));
    const Tensor plain_out(Shape{2, 3, 5});
    BinaryInto(op, a, pb, plain_out);
    EXPECT_EQ(Values(plain_out), want);
    BinaryInto(op, a, b, pb);
    EXPECT_EQ(Values(pb), want);
  }
}

TEST(Binary, OpaqueLayoutsOfTwoTypes) {
  Random random(7);
  const Shape shape = {2, 3, 4, 5};
  for (const char* tag : {"nhwc", "nChw16c"})
    for (const BinaryOp op : EveryOp()) {
      const Tensor a = RandomTensor(random, shape, kFloat32, 0.3, 3);
      const Tensor b = RandomTensor(random, shape, kBFloat16, 0.3, 3);
      const auto opaque = [&](const Tensor& t) {
        return t.ToLayout(BlockedLayoutNamed(tag, shape, t.data_type()));
      };
      const Vector want = Values(Binary(op, a, b));
      for (const auto& [x, y] :
           {std::pair(opaque(a), opaque(b)), std::pair(opaque(a), b), std::pair(a, opaque(b))}) {
        const Tensor c = Binary(op, x, y);
        EXPECT_EQ(Values(c), want) << BinaryName(op);
        EXPECT_EQ(c.data_type(), kFloat32);
        const bool stays = KeepsZero(op) || tag == std::string("nhwc");
        EXPECT_EQ(LayoutName(c.layout()), stays ? tag : "plain") << BinaryName(op);
      }
      if (HasGradient(op)) {
        const Tensor dy = RandomTensor(random, shape);
        const auto got = BinaryBackward(op, opaque(dy), opaque(a), opaque(b), {}, true, true);
        const auto plain = BinaryBackward(op, dy, a, b, {}, true, true);
        for (int i = 0; i < 2; ++i) {
          EXPECT_EQ(Values(got[i]), Values(plain[i])) << BinaryBackwardName(op);
          EXPECT_EQ(got[i].data_type(), plain[i].data_type());
        }
      }
      const Tensor out = opaque(a);
      BinaryInto(op, out, opaque(b), out);
      EXPECT_EQ(Values(out), want) << BinaryName(op);
    }
}

TEST(Binary, NumbersBesideImagesInBlocks) {
  Random random(8);
  for (const int64_t channels : {16, 13})
    for (const BinaryOp op : EveryOp()) {
      const Shape shape = {2, channels, 4, 5};
      const Tensor x = RandomTensor(random, shape, kFloat32, 0.3, 3);
      const Tensor dy = RandomTensor(random, shape);
      const LayoutPtr layout = BlockedLayoutNamed("nChw8c", shape, kFloat32);
      const Tensor xb = x.ToLayout(layout), dyb = dy.ToLayout(layout);
      // A number with as few axes, more, and of another type.
      for (const Tensor& s : {Full({}, 0.7), Full({1}, 1.3), Full({1, 1, 1}, 2),
                              Full({1, 1, 1, 1, 1}, 2), Full({1}, 2, nullptr, kInt32)}) {
        const bool stays = channels == 16 && s.rank() <= 4;
        for (const bool front : {false, true}) {
          const auto call = [&](const Tensor& image) {
            return front ? Binary(op, s, image) : Binary(op, image, s);
          };
          const Tensor c = call(xb);
          EXPECT_EQ(Values(c), Values(call(x))) << BinaryName(op);
          EXPECT_EQ(c.shape(), call(x).shape());
          EXPECT_EQ(c.is_blocked(), stays) << BinaryName(op) << " " << s;
        }
        if (!HasGradient(op) || !IsFloat(s.data_type()) || s.rank() > 4) continue;
        const auto got = BinaryBackward(op, dyb, xb, s, {}, true, true);
        const auto want = BinaryBackward(op, dy, x, s, {}, true, true);
        EXPECT_EQ(Values(got[0]), Values(want[0])) << BinaryBackwardName(op);
        EXPECT_EQ(got[1].shape(), s.shape());
        // Sums in another order.
        ExpectNear(got[1], Values(want[1]), 1e-3, BinaryBackwardName(op));
        const auto other = BinaryBackward(op, dyb, s, xb, {}, true, true);
        EXPECT_EQ(Values(other[1]), Values(BinaryBackward(op, dy, s, x, {}, true, true)[1]));
      }
      const Tensor out = x.ToLayout(layout);
      BinaryInto(op, out, Full({}, 2), out);
      EXPECT_EQ(Values(out), Values(Binary(op, x, Full({}, 2)))) << BinaryName(op);
    }
}

TEST(Binary, OneCacheEntryForAllShapes) {
  const uint64_t before = GetPlanCacheStats().entries;
  for (int64_t n = 1; n < 20; ++n) Binary(BinaryOp::kMod, Full({n}, 3), Full({n}, 2));
  EXPECT_LE(GetPlanCacheStats().entries, before + 1);
}

TEST(Binary, DoesNotWriteToBroadcastViews) {
  const Tensor a = Full({2, 3}, 2), row = Full({1, 3}, 1);
  const Tensor view = row.Broadcast({2, 3});
  EXPECT_THROW(BinaryInto(BinaryOp::kAdd, a, a, view), std::invalid_argument);
  EXPECT_THROW(UnaryInto(UnaryOp::kAbs, a, view), std::invalid_argument);
  EXPECT_THROW(Axpy(1, a, view), std::invalid_argument);
  EXPECT_EQ(row.SliceAxis(1, 2, 3).Item(), 1);
}

}  // namespace
}  // namespace singa::test
