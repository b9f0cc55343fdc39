#include "singa/operation/reduce.h"

#include "support.h"

namespace singa::test {
namespace {

TEST(Reduce, LongSumsKeepTheirPrecision) {
  // float32 cannot represent 0.1 exactly: a single float32 accumulator would be wrong by about 10
  // %.
  const int64_t n = 3'000'000;
  const double tenth = static_cast<double>(0.1f);
  const Tensor x = Full({n}, 0.1);
  EXPECT_NEAR(Reduce(ReduceOp::kSum, x).Item(), tenth * n, tenth * n * 0x1p-23);
  EXPECT_NEAR(Reduce(ReduceOp::kMean, x).Item(), tenth, tenth * 0x1p-23);
  const Tensor columns = Full({n / 3, 3}, 0.1);
  for (double sum : Values(Reduce(ReduceOp::kSum, columns, {0})))
    EXPECT_NEAR(sum, tenth * (n / 3), tenth * n * 0x1p-23);
  const Tensor half = Full({100, 1000}, 0.1, nullptr, kBFloat16);
  EXPECT_NEAR(Reduce(ReduceOp::kSum, half).Item(),
              1e5 * half.SliceAxis(0, 0, 1).SliceAxis(1, 0, 1).Item(), 1e4 * 0x1p-8);
}

TEST(Reduce, SameBitsForAnyNumberOfThreads) {
  Random random(3);
  struct Case {
    Shape shape;
    std::vector<int64_t> axes;
  };
  for (const auto& [shape, axes] : {Case{{8, 16, 31, 33}, {0, 2, 3}}, Case{{5000, 65}, {0}},
                                    Case{{300'001}, {}}, Case{{65, 5000}, {1}}}) {
    const Tensor x = RandomTensor(random, shape, kFloat64);
    SameOnThreads({2, 3, 7}, [&] { return Values(Reduce(ReduceOp::kSum, x, axes)); });
  }
}

TEST(Reduce, Integers) {
  const Tensor x = FromValues({2, 3}, {1, -2, 3, 4, 5, -6}, kInt32);
  EXPECT_EQ(Reduce(ReduceOp::kSum, x).data_type(), kInt64);
  EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, {1})), (Vector{2, 3}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kProd, x, {0})), (Vector{4, -10, -18}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kL1, x)), (Vector{21}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kSumSquare, x)), (Vector{91}));
  EXPECT_EQ(Reduce(ReduceOp::kMax, x).data_type(), kInt32);
  EXPECT_EQ(Values(Reduce(ReduceOp::kMin, x, {1})), (Vector{-2, -6}));
  // The sum exceeds the range of the element type.
  EXPECT_EQ(Reduce(ReduceOp::kSum, Full({300}, 100, nullptr, kInt8)).Item(), 30000);
  EXPECT_EQ(Reduce(ReduceOp::kSum, Full({3}, 2e9, nullptr, kInt32)).Item(), 6e9);
  const Tensor flags = FromValues({4}, {1, 0, 1, 1}, kBool);
  EXPECT_EQ(Reduce(ReduceOp::kSum, flags).Item(), 3);
  EXPECT_EQ(Reduce(ReduceOp::kMax, flags).data_type(), kBool);
  EXPECT_EQ(Reduce(ReduceOp::kMin, flags).Item(), 0);
}

TEST(Reduce, EmptyRangesGiveTheNeutralElement) {
  const Tensor x({0, 3});
  EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, {0})), (Vector{0, 0, 0}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kProd, x, {0})), (Vector{1, 1, 1}));
  EXPECT_EQ(Reduce(ReduceOp::kL2, x).Item(), 0);
  EXPECT_TRUE(std::isnan(Reduce(ReduceOp::kMean, x).Item()));
  EXPECT_EQ(Reduce(ReduceOp::kMax, x, {1}).shape(), Shape({0}));
  EXPECT_ERROR(std::invalid_argument, "[ReduceMax] x (0, 3) has no elements",
               Reduce(ReduceOp::kMax, x, {0}));
  const Tensor y = Reduce(ReduceOp::kSum, x, {0});
  EXPECT_EQ(ReduceBackward(ReduceOp::kSum, y, x, y, {0}, false).shape(), x.shape());
}

TEST(Reduce, NanAndInfinity) {
  const Tensor x = FromValues({2, 3}, {1, kNan, 3, 1, kInf, -kInf});
  const auto max = Values(Reduce(ReduceOp::kMax, x, {1}));
  EXPECT_TRUE(std::isnan(max[0]));
  EXPECT_EQ(max[1], kInf);
  EXPECT_TRUE(std::isnan(Values(Reduce(ReduceOp::kMin, x, {1}))[0]));
  const auto columns = Values(Reduce(ReduceOp::kMin, x, {0}));
  EXPECT_EQ(columns[0], 1);
  EXPECT_TRUE(std::isnan(columns[1]));
  EXPECT_EQ(columns[2], -kInf);
  const Tensor y = Reduce(ReduceOp::kMax, x, {1});
  const auto dx = Values(ReduceBackward(ReduceOp::kMax, Full({2}, 1), x, y, {1}, false));
  EXPECT_EQ(dx, (Vector{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(Reduce(ReduceOp::kMax, Full({5}, -kInf)).Item(), -kInf);
}

TEST(SumTo, SameShapeIsTheSameTensorAndMisfitsRaise) {
  const Tensor x = Full({2, 3}, 1);
  EXPECT_EQ(SumTo(x, {2, 3}).block(), x.block());
  EXPECT_EQ(SumTo(x, {}).Item(), 6);
  EXPECT_ERROR(std::invalid_argument, "[SumTo] shape (2,) does not broadcast to x (2, 3)",
               SumTo(x, {2}));
  EXPECT_ERROR(std::invalid_argument, "does not broadcast", SumTo(x, {1, 2, 3}));
}

TEST(ArgMax, FirstNanWins) {
  const Tensor x = FromValues({2, 4}, {1, kNan, 9, kNan, 4, 2, kInf, 0});
  EXPECT_EQ(Values(ArgMax(x, 1)), (Vector{1, 2}));
  EXPECT_EQ(Values(ArgMin(x, 1)), (Vector{1, 3}));
  EXPECT_EQ(Values(ArgMax(x, 0)), (Vector{1, 0, 1, 0}));
  EXPECT_EQ(Values(ArgMin(x.Transpose(), 0)), (Vector{1, 3}));
  EXPECT_EQ(Values(ArgMax(Full({20}, -kInf), 0)), (Vector{0}));
}

TEST(CountTopK, BadLabelsAndNan) {
  const Tensor scores = FromValues({2, 3}, {kNan, kNan, kNan, 1, 2, 3});
  EXPECT_EQ(CountTopK(scores, FromValues({2}, {0, 2}, kInt32), 1), 1);
  EXPECT_ERROR(std::out_of_range, "[CountTopK] label 3 of row 1 is outside [0, 3)",
               CountTopK(scores, FromValues({2}, {0, 3}, kInt32), 1));
  EXPECT_ERROR(std::out_of_range, "label -1 of row 0",
               CountTopK(scores, FromValues({2}, {-1, 0}, kInt64), 1));
  EXPECT_ERROR(TypeError, "int32 or int64", CountTopK(scores, Full({2}, 0), 1));
  EXPECT_ERROR(std::invalid_argument, "labels must have shape (2,)",
               CountTopK(scores, Full({3}, 0, nullptr, kInt32), 1));
  EXPECT_ERROR(std::invalid_argument, "labels", CountTopK(Full({3}, 0), Tensor(), 1));
  EXPECT_ERROR(std::invalid_argument, "k must be at least 1",
               CountTopK(scores, Full({2}, 0, nullptr, kInt32), 0));
}

}  // namespace
}  // namespace singa::test
