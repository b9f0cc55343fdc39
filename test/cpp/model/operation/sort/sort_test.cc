#include "singa/operation/sort.h"

#include "support.h"

namespace singa::test {
namespace {

TEST(TopK, NanIsTheLargestAndZerosAreEqual) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const Tensor x = FromValues({7}, {0, NAN, -0.0, HUGE_VAL, -HUGE_VAL, -NAN, 0}, dtype);
    EXPECT_EQ(Values(TopK(x, 7)[1]), (Vector{1, 5, 3, 0, 2, 6, 4}));
    EXPECT_EQ(Values(TopK(x, 7, 0, false)[1]), (Vector{4, 0, 2, 6, 3, 1, 5}));
  }
}

TEST(CumSum, LongSumsHaveOneRounding) {
  const int64_t n = 100'000;
  const Vector ys = Values(CumSum(Full({n}, 0.1, nullptr, kFloat32), 0));
  const auto tenth = static_cast<double>(0.1f);
  for (int64_t i : {int64_t{9}, n / 2, n - 1})
    ASSERT_EQ(ys[static_cast<size_t>(i)],
              static_cast<double>(static_cast<float>(tenth * static_cast<double>(i + 1))));
}

}  // namespace
}  // namespace singa::test
