#include "backend/cpu/linalg/outer_sums.h"

#include "model/operation/conv/conv_naive.h"

namespace singa::test {
namespace {

class OuterSumsTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    loops_ = GetParam() ? cpu::Avx512PairLoops() : &cpu::PlainPairLoops();
    if (!loops_) GTEST_SKIP() << "this CPU has no bfloat16 instructions";
  }

  /// Of two tensors (images, terms, columns).
  Tensor Result(const Tensor& left, const Tensor& right, int threads, int64_t cache) const {
    const cpu::OuterSums::Sizes sizes{
        left.shape(2), right.shape(2), left.shape(0), {1, 1}, {left.shape(1), left.shape(1)}};
    const cpu::OuterSums sums(*loops_, sizes, threads, cache);
    const Tensor workspace({static_cast<int64_t>(sums.workspace_bytes())}, nullptr, kUInt8);
    const Tensor result({sizes.left, sizes.right});
    auto* to = static_cast<float*>(result.raw_data());
    const auto factor = [&](const Tensor& t) -> cpu::OuterFactor {
      return {static_cast<const BFloat16*>(t.raw_data()), t.shape(1) * t.shape(2), 0, t.shape(2),
              16};
    };
    sums.Run(factor(left), factor(right), workspace.raw_data(),
             [&](int64_t l, int64_t r, int64_t, const float* block) {
               for (int64_t i = 0; i < 16; ++i)
                 std::copy_n(block + i * 16, 16, to + (l * 16 + i) * sizes.right + r * 16);
             });
    return result;
  }

  const cpu::PairLoops* loops_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Avx512, OuterSumsTest, testing::Bool());

/// One and many chunks and slices of terms, and parts of columns; the same bits on any threads.
TEST_P(OuterSumsTest, AreTheDefinition) {
  struct Case {
    int64_t images, length, left, right, cache;
  };
  const Case cases[] = {{1, 1, 16, 16, 1 << 20},    {3, 49, 32, 48, 1 << 20},
                        {20, 49, 16, 80, 1 << 16},  {2, 300, 48, 32, 1 << 16},
                        {1, 4500, 16, 32, 1 << 20}, {5, 1025, 16, 16, 1 << 20}};
  const ThreadCount scope;
  Random random(7);
  for (const Case& c : cases) {
    SCOPED_TRACE(Shape({c.images, c.length, c.left, c.right}).ToString());
    const Tensor left = RandomTensor(random, {c.images, c.length, c.left}, kBFloat16),
                 right = RandomTensor(random, {c.images, c.length, c.right}, kBFloat16);
    const Vector ls = Values(left), rs = Values(right);
    Sums sums(c.left * c.right);
    for (int64_t t = 0; t < c.images * c.length; ++t)
      for (int64_t l = 0; l < c.left; ++l)
        for (int64_t r = 0; r < c.right; ++r)
          sums.Add(l * c.right + r, ls[t * c.left + l] * rs[t * c.right + r]);
    Vector first;
    for (const int threads : {1, 2, 5}) {
      SetNumThreads(threads);
      const Tensor result = Result(left, right, threads, c.cache);
      ExpectSums(result, {c.left, c.right}, sums, "sums");
      if (threads == 1) first = Values(result);
      EXPECT_EQ(Values(result), first) << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace singa::test
