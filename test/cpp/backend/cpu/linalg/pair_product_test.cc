#include "backend/cpu/linalg/pair_product.h"

#include "model/operation/conv/conv_naive.h"
#include "singa/core/half.h"

namespace singa::test {
namespace {

/// Runs with plain loops, and with those of the processor if it has some.
class PairProduct : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    loops_ = GetParam() ? cpu::Avx512PairLoops() : &cpu::PlainPairLoops();
    if (!loops_) GTEST_SKIP() << "this CPU has no bfloat16 instructions";
  }
  const cpu::PairLoops* loops_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(Avx512, PairProduct, testing::Bool());

const uint32_t* Words(const Tensor& t) { return static_cast<const uint32_t*>(t.raw_data()); }

TEST_P(PairProduct, IsTheDefinition) {
  Random random(3);
  for (const int64_t rows : {4, 8, 12, 16, 20, 28, 40})
    for (const int64_t columns : {16, 32, 48})
      for (const int64_t pairs : {1, 5, 32}) {
        // Rows of pairs, and pairs of rows; panels of 16 columns.
        const Tensor a = RandomTensor(random, {rows, pairs, 2}, kBFloat16),
                     b = RandomTensor(random, {columns / 16, pairs, 16, 2}, kBFloat16);
        const Vector as = Values(a), bs = Values(b);
        Sums once(rows * columns), twice(rows * columns);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            for (int64_t i = 0; i < pairs; ++i)
              for (int64_t half = 0; half < 2; ++half) {
                const double product = as[(r * pairs + i) * 2 + half] *
                                       bs[((c / 16 * pairs + i) * 16 + c % 16) * 2 + half];
                once.Add(r * columns + c, product / 2);
                twice.Add(r * columns + c, product / 2);
                twice.Add(r * columns + c, product);
              }
        const Tensor out({rows, columns});
        auto* to = static_cast<float*>(out.raw_data());
        const cpu::PairPanels right{Words(b), pairs * 16, 16};
        loops_->multiply(rows, columns, pairs, {Words(a), pairs, 1}, right,
                         {to, columns, 16, 0.5f, false});
        ExpectSums(out, {rows, columns}, once, "product");
        const Tensor turned = a.Transpose({1, 0, 2}).Contiguous();
        loops_->multiply(rows, columns, pairs, {Words(turned), 1, rows}, right,
                         {to, columns, 16, 1, true});
        ExpectSums(out, {rows, columns}, twice, "added to");
      }
}

TEST_P(PairProduct, JoinsRows) {
  Random random(5);
  const Tensor x = RandomTensor(random, {7, 19}, kBFloat16);
  const auto* from = static_cast<const BFloat16*>(x.raw_data());
  for (const int64_t rows : {1, 2, 7}) {
    std::vector<uint32_t> words(static_cast<size_t>((rows + 1) / 2 * 16));
    loops_->join(from, 19, rows, words.data());
    for (int64_t r = 0; r < rows + rows % 2; ++r)
      for (int64_t c = 0; c < 16; ++c)
        EXPECT_EQ(words[static_cast<size_t>(r / 2 * 16 + c)] >> 16 * (r % 2) & 0xffffu,
                  r < rows ? from[r * 19 + c].bits : 0u);
  }
}

TEST_P(PairProduct, RoundsToTheNearest) {
  Random random(4);
  for (const int64_t rows : {1, 2, 5}) {
    constexpr int64_t kColumns = 32;
    const Tensor x = RandomTensor(random, {rows, kColumns});
    const auto* values = static_cast<const float*>(x.raw_data());
    std::vector<uint32_t> words(static_cast<size_t>(rows * kColumns / 2)),
        pairs(static_cast<size_t>((rows + 1) / 2 * kColumns));
    loops_->round(values, rows * kColumns, words.data());
    loops_->round_rows(values, rows, kColumns, pairs.data());
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < kColumns; ++c) {
        const uint16_t want = BFloat16(values[r * kColumns + c]).bits;
        const auto half = [](uint32_t word, int64_t which) {
          return static_cast<uint16_t>(word >> 16 * which);
        };
        EXPECT_EQ(half(words[static_cast<size_t>((r * kColumns + c) / 2)], c % 2), want);
        EXPECT_EQ(half(pairs[static_cast<size_t>(r / 2 * kColumns + c)], r % 2), want);
      }
    for (int64_t c = 0; rows % 2 == 1 && c < kColumns; ++c)
      EXPECT_EQ(pairs[static_cast<size_t>(rows / 2 * kColumns + c)] >> 16, 0u);
  }
}

}  // namespace
}  // namespace singa::test
