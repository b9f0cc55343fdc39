// Pooling of signals (N, C, L) and volumes (N, C, D, H, W), by adaptive windows, and by p-norms.

#include "singa/operation/pooling.h"

#include <memory>

#include "support.h"

namespace singa::test {
namespace {

TEST(PoolingDimensions, NanWinsEveryMaximum) {
  for (Preference preference : kImplementations) {
    PreferenceScope scope(preference);
    const Tensor x = FromValues({1, 1, 5}, {1, kNan, -kInf, -kInf, 2});
    const auto y = AdaptivePoolForward(x, {3}, true);  // [0, 2), [1, 4), [3, 5)
    EXPECT_TRUE(std::isnan(Values(y[0])[0]) && std::isnan(Values(y[0])[1]));
    EXPECT_EQ(Values(y[0])[2], 2);
    EXPECT_EQ(Values(y[1]), Vector({1, 1, 4}));
    const Tensor dx = AdaptivePoolBackward(FromValues({1, 1, 3}, {1, 2, 4}), {1, 1, 5}, true, x);
    EXPECT_EQ(Values(dx), Vector({0, 3, 0, 0, 4}));
  }
}

TEST(PoolingDimensions, NormsOfZeros) {
  for (double p : {0.5, 1.0, 2.0, 3.0}) {
    const Tensor x = FromValues({1, 1, 4}, {0, 0, 3, 0});
    const PoolingHandle handle(x, {2}, {2}, {0}, false);
    const Tensor y = LpPoolForward(handle, x, p);
    ExpectNear(y, {0, 3}, {0, 1e-5}, "y");
    const Tensor dx = LpPoolBackward(handle, FromValues({1, 1, 2}, {5, 7}), x, y, p);
    ExpectNear(dx, {0, 0, 7, 0}, {0, 0, 1e-5, 0}, "dx");
  }
}

}  // namespace
}  // namespace singa::test
