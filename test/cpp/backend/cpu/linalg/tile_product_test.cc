#include "backend/cpu/linalg/tile_product.h"

#include "model/operation/conv/conv_naive.h"

namespace singa::test {
namespace {

/// Runs with vectors of both widths, on any CPU: results are the same everywhere.
class TileProduct : public testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Lanes, TileProduct, testing::Values(8, 16));

TEST_P(TileProduct, IsTheDefinition) {
  Random random(3);
  const int64_t lanes = GetParam();
  const auto multiply = lanes == 16 ? cpu::Multiply<16> : cpu::Multiply<8>;
  for (const int64_t rows : {4, 6, 8, 12, 16, 20, 24, 36}) {
    if (rows % 4 != 0 && lanes == 16) continue;
    for (const int64_t columns : {lanes, 2 * lanes, 3 * lanes})
      for (const int64_t depth : {1, 5, 32}) {
        const Tensor a = RandomTensor(random, {rows, depth}),
                     b = RandomTensor(random, {depth, columns});
        const Vector as = Values(a), bs = Values(b);
        Sums once(rows * columns), twice(rows * columns);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t c = 0; c < columns; ++c)
            for (int64_t i = 0; i < depth; ++i)
              for (int repeat = 0; repeat < 2; ++repeat) {
                const double product = as[r * depth + i] * bs[i * columns + c];
                if (repeat == 0) once.Add(r * columns + c, product);
                twice.Add(r * columns + c, product);
              }
        const Tensor out({rows, columns});
        const auto* left = static_cast<const float*>(a.raw_data());
        const auto* right = static_cast<const float*>(b.raw_data());
        auto* to = static_cast<float*>(out.raw_data());
        multiply(rows, columns, depth, {left, depth, 1}, right, columns, to, columns, false);
        ExpectSums(out, {rows, columns}, once, "product");
        const Tensor turned = a.Transpose().Contiguous();
        multiply(rows, columns, depth, {static_cast<const float*>(turned.raw_data()), 1, rows},
                 right, columns, to, columns, true);
        ExpectSums(out, {rows, columns}, twice, "added to");
      }
  }
}

TEST_P(TileProduct, PiecesHaveTheBitsOfTheWhole) {
  Random random(4);
  const int64_t lanes = GetParam(), columns = 3 * lanes, depth = 37, piece = 20;
  const bool wide = lanes == 16;
  for (const int64_t rows : {4, 8, 12, 20}) {
    const Tensor a = RandomTensor(random, {rows, depth}),
                 b = RandomTensor(random, {depth, columns});
    const auto* left = static_cast<const float*>(a.raw_data());
    const auto* right = static_cast<const float*>(b.raw_data());
    const Tensor whole({rows, columns}), pieces({rows, columns});
    auto* to = static_cast<float*>(pieces.raw_data());
    (wide ? cpu::Multiply<16> : cpu::Multiply<8>)(rows, columns, depth, {left, depth, 1}, right,
                                                  columns, static_cast<float*>(whole.raw_data()),
                                                  columns, false);
    (wide ? cpu::Multiply<16> : cpu::Multiply<8>)(rows, columns, piece, {left, depth, 1}, right,
                                                  columns, to, columns, false);
    (wide ? cpu::MultiplyOn<16>
          : cpu::MultiplyOn<8>)(rows, columns, depth - piece, {left + piece, depth, 1},
                                right + piece * columns, columns, to, columns);
    EXPECT_EQ(Values(pieces), Values(whole)) << rows;
  }
}

TEST(TileRows, AreFew) {
  EXPECT_EQ(cpu::RowsFor<16>(1), 4);
  EXPECT_EQ(cpu::RowsFor<16>(13), 16);
  EXPECT_EQ(cpu::RowsFor<8>(5), 6);
  EXPECT_EQ(cpu::RowsFor<8>(7), 8);
  EXPECT_EQ(cpu::RowsFor<8>(9), 12);
}

}  // namespace
}  // namespace singa::test
