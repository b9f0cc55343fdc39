#include "singa/operation/lrn.h"

#include "support.h"

namespace singa::test {
namespace {

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

}  // namespace
}  // namespace singa::test
