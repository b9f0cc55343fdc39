#include "singa/operation/indexing.h"

#include "support.h"

namespace singa::test {
namespace {

TEST(Slice, Defaults) {
  const Tensor x = FromValues({2, 3}, {0, 1, 2, 3, 4, 5});
  EXPECT_EQ(Values(Slice(x, {1}, {2})), (Vector{3, 4, 5}));
  EXPECT_EQ(Values(Slice(x, {0, 1}, {1'000'000, INT64_MAX})), (Vector{1, 2, 4, 5}));
  EXPECT_EQ(Values(Slice(x, {-1}, {INT64_MIN}, {1}, {-1})), (Vector{2, 1, 0, 5, 4, 3}));
  EXPECT_EQ(Values(Slice(x, {}, {})), Values(x));
}

TEST(ScatterElements, GradientsOfReductions) {
  // Column 0: no update. Column 1: one zero among the factors. Column 2: two equal maxima.
  const Tensor x = FromValues({1, 3}, {5, 2, 3}), dy = FromValues({1, 3}, {10, 20, 30});
  const Tensor indices = FromValues({1, 4}, {1, 2, 1, 2}, kInt64);
  const Tensor updates = FromValues({1, 4}, {0, 3, 7, -1});
  const auto gradients = [&](ScatterReduction reduction) {
    const Tensor y = ScatterElements(x, indices, updates, 1, reduction);
    return ScatterElementsBackward(dy, indices, 1, reduction, x, updates, y);
  };
  auto got = gradients(ScatterReduction::kAdd);
  EXPECT_EQ(Values(got[0]), (Vector{10, 20, 30}));
  EXPECT_EQ(Values(got[1]), (Vector{20, 30, 20, 30}));
  got = gradients(ScatterReduction::kMul);
  EXPECT_EQ(Values(got[0]), (Vector{10, 0, -90}));
  EXPECT_EQ(Values(got[1]), (Vector{280, -90, 0, 270}));
  got = gradients(ScatterReduction::kMax);
  EXPECT_EQ(Values(got[0]), (Vector{10, 0, 15}));
  EXPECT_EQ(Values(got[1]), (Vector{0, 15, 20, 0}));
  got = gradients(ScatterReduction::kMin);
  EXPECT_EQ(Values(got[0]), (Vector{10, 0, 0}));
  EXPECT_EQ(Values(got[1]), (Vector{20, 0, 0, 30}));
}

}  // namespace
}  // namespace singa::test
