// LRN, softmax, group norm and sums on blocked layouts, and what kernels of such layouts refuse.

#include "backend/cpu/lane_layouts.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/lrn/spec.h"
#include "model/operation/softmax/spec.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/lrn.h"
#include "singa/operation/norm.h"
#include "singa/operation/reduce.h"
#include "singa/operation/softmax.h"
#include "support.h"

namespace singa::test {
namespace {

DType AnyType(Random& random) {
  return random.Int(0, 3) == 0 && HasAvx512() ? kBFloat16 : kFloat32;
}

TEST(BlockedLayouts, Lrn) {
  Random random(96);
  int taken = 0;
  for (int i = 0; i < 100 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = AnyType(random);
    const int64_t channels = random.Coin() ? 16 * random.Int(1, 4) : random.Int(2, 70);
    const Shape shape{random.Int(1, 3), channels, random.Int(2, 9), random.Int(1, 9)};
    const int64_t size = random.Coin() ? 5 : random.Int(1, 9);
    const double alpha = random.Coin() ? 1e-4 : 1, beta = random.Int(0, 3) ? 0.75 : 0.5;
    const double k = random.Coin() ? 1 : 2;
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
                 " size " + std::to_string(size));
    const Tensor x = RandomTensor(random, shape, dtype, -2, 2);
    const Tensor dy = RandomTensor(random, shape, dtype);
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    PreferenceScope reference(Preference::kReference);
    const auto want = LrnForward(x, size, alpha, beta, k);
    const Tensor dx = LrnBackward(dy, x, want[0], want[1], size, alpha, beta, k);
    PreferenceScope fastest(Preference::kFastest);
    const uint64_t reorders = Reorders();
    const auto got = LrnForward(xb, size, alpha, beta, k);
    const Tensor dxb = LrnBackward(dyb, xb, got[0], got[1], size, alpha, beta, k);
    const bool willing =
        Refusal(LrnForwardSpec{{shape, dtype, size, alpha, beta, k, xb.layout()}, true}).empty();
    if (willing) {
      EXPECT_EQ(Reorders(), reorders);
      ExpectIn(got[0], tag, "y");
      ExpectIn(dxb, tag, "dx");
      ++taken;
    }
    ExpectSame(got[0], want[0], 64 * 0x1p-23, "y");
    ExpectSame(dxb, dx, 64 * 0x1p-23, "dx");
    ExpectSame(LrnForward(xb, size, alpha, beta, k, false)[0], want[0], 64 * 0x1p-23, "inference");
  }
  EXPECT_TRUE(taken > 12 || !HasAvx512()) << taken;
}

TEST(BlockedLayouts, SoftmaxOfABlockedTensor) {
  Random random(97);
  const Tensor x = RandomTensor(random, {2, 20, 3, 4});
  for (int axis = 0; axis < 4; ++axis)
    EXPECT_EQ(Values(Softmax(In(x, Tag::kNChw16c), axis)), Values(Softmax(x, axis)));
}

TEST(BlockedLayouts, GroupNorm) {
  Random random(98);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    const int64_t groups = random.Coin() ? 1 : random.Int(1, 5);
    const Shape shape{random.Int(1, 3), groups * random.Int(1, 20), random.Int(1, 12),
                      random.Int(2, 12)};
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)) +
                 " groups " + std::to_string(groups));
    const Tensor x = RandomTensor(random, shape, dtype, -2, 3);
    const Tensor dy = RandomTensor(random, shape, dtype);
    const Tensor scale = RandomTensor(random, {shape[1]}), bias = RandomTensor(random, {shape[1]});
    const Tensor xb = In(x, tag), dyb = In(dy, tag);
    PreferenceScope reference(Preference::kReference);
    const auto want = GroupNormForward(x, groups, scale, bias);
    const auto gradients = GroupNormBackward(dy, x, groups, scale, want[1], want[2]);
    PreferenceScope fastest(Preference::kFastest);
    const uint64_t reorders = Reorders();
    const auto got = GroupNormForward(xb, groups, scale, bias);
    const auto back = GroupNormBackward(dyb, xb, groups, scale, got[1], got[2]);
    EXPECT_EQ(Reorders(), reorders);
    if (xb.layout()) {
      ExpectIn(got[0], tag, "y");
      ExpectIn(back[0], tag, "dx");
    }
    const double rounding = dtype == kFloat32 ? 256 * 0x1p-23 : 4 * 0x1p-8;
    ExpectSame(got[0], want[0], rounding, "y");
    ExpectSame(got[1], want[1], 64 * 0x1p-23, "mean");
    ExpectSame(got[2], want[2], 64 * 0x1p-23, "inv_std");
    ExpectSame(back[0], gradients[0], rounding, "dx");
    ExpectSame(back[1], gradients[1], 1e-4, "dscale");
    ExpectSame(back[2], gradients[2], 1e-4, "dbias");
  }
}

TEST(BlockedLayouts, SumsForEachChannelAndOfAll) {
  Random random(99);
  for (int i = 0; i < 150 && !testing::Test::HasFailure(); ++i) {
    const Tag tag = kTags[random.Int(0, 2)];
    const DType dtype = random.Int(0, 3) == 0 ? kBFloat16 : kFloat32;
    const Shape shape{random.Int(1, 4), random.Int(2, 40), random.Int(2, 9), random.Int(2, 9)};
    SCOPED_TRACE(shape.ToString() + DTypeName(dtype) + " tag " + std::to_string(int(tag)));
    const Tensor x = RandomTensor(random, shape, dtype, -1, 2), xb = In(x, tag);
    const double rounding = dtype == kFloat32 ? 64 * 0x1p-23 : 4 * 0x1p-8;
    const uint64_t reorders = Reorders();
    const Tensor sums = Reduce(ReduceOp::kSum, xb, {0, 2, 3}, true);
    const Tensor flat = SumTo(xb, {shape[1], 1, 1});
    EXPECT_EQ(Reorders(), reorders);
    EXPECT_EQ(sums.shape(), (Shape{1, shape[1], 1, 1}));
    EXPECT_EQ(flat.shape(), (Shape{shape[1], 1, 1}));
    const Tensor want = Reduce(ReduceOp::kSum, x, {0, 2, 3}, true);
    ExpectSame(sums, want, rounding, "sums");
    ExpectEqual(flat.Reshape(sums.shape()), sums, "flat");
    const Tensor all = SumTo(xb, {});
    EXPECT_TRUE(Reorders() == reorders || dtype != kFloat32);
    ExpectSame(all, SumTo(x, {}), rounding, "all");
    // Whole numbers have whole sums.
    const Tensor ones = In(Full(shape, 1, nullptr, kFloat32), tag);
    EXPECT_EQ(SumTo(ones, {1}).Item(), static_cast<double>(shape.Count()));
    for (const double sum : Values(Reduce(ReduceOp::kSum, ones, {0, 2, 3}, false)))
      EXPECT_EQ(sum, static_cast<double>(shape.Count() / shape[1]));
    // Other reductions take the image as a plain one.
    for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kL1, ReduceOp::kMean})
      EXPECT_EQ(Values(Reduce(op, xb, {0, 2, 3}, false)), Values(Reduce(op, x, {0, 2, 3}, false)));
  }
}

TEST(BlockedLayouts, FunctionsThatDoNotKeepZero) {
  Random random(100);
  for (const int64_t channels : {16, 32, 13}) {
    const Shape shape{2, channels, 3, 4};
    const Tensor x = RandomTensor(random, shape, kFloat32, -1, 2);
    for (const Tag tag : kTags) {
      const Tensor y = Unary(UnaryOp::kSigmoid, In(x, tag));
      EXPECT_EQ(Values(y), Values(Unary(UnaryOp::kSigmoid, x)));
      EXPECT_EQ(y.is_blocked(), !LayoutOf(shape, kFloat32, tag)->is_padded());
      if (y.is_blocked()) ExpectIn(y, tag, "y");
    }
  }
}

TEST(BlockedLayouts, KernelsRefuseWithAReason) {
  const Shape shape{2, 16, 4, 4};
  EXPECT_NE(Refusal(BatchNormForwardSpec{{.shape = shape}}).find("row-major"), std::string::npos);
  EXPECT_NE(Refusal(BatchNormForwardSpec{{.shape = shape, .dtype = kFloat64}}).find("float64"),
            std::string::npos);
  EXPECT_NE(Refusal(LrnForwardSpec{{.shape = shape, .size = 4}}).find("even"), std::string::npos);
  EXPECT_NE(Refusal(LrnBackwardSpec{{.shape = shape}}).find("another implementation"),
            std::string::npos);
  EXPECT_NE(Refusal(SoftmaxSpec{.outer = 2, .axis = 3, .inner = 4}).find("innermost"),
            std::string::npos);
  if (HasAvx512()) {
    EXPECT_EQ(Refusal(SoftmaxSpec{.outer = 2, .axis = 300}), "");
    EXPECT_EQ(Refusal(BatchNormForwardSpec{{.shape = {8, 64}}}), "");
  }
}

}  // namespace
}  // namespace singa::test
