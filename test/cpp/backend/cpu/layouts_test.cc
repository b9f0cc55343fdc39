// LRN and softmax on blocked layouts, and what kernels of such layouts refuse.

#include "backend/cpu/lane_layouts.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/lrn/spec.h"
#include "model/operation/softmax/spec.h"
#include "singa/operation/lrn.h"
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
