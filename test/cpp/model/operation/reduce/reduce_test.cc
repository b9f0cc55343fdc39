#include "singa/operation/reduce.h"

#include "singa/core/threads.h"
#include "support.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::Epsilon;
using test::ExpectError;
using test::Flat;
using test::ForEachIndex;
using test::FromValues;
using test::Index;
using test::Random;
using test::RandomTensor;
using test::Values;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMean,     ReduceOp::kMax,
                             ReduceOp::kMin, ReduceOp::kProd,     ReduceOp::kL1,
                             ReduceOp::kL2,  ReduceOp::kSumSquare};

// For axes given as a mask: the elements of x that each element of the result depends on.
struct Grouping {
  Shape result;  // keepdims
  std::vector<std::vector<size_t>> members;

  Grouping(const Shape& shape, uint32_t mask) : result(shape) {
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (mask >> axis & 1) result[axis] = 1;
    members.resize(result.Count());
    ForEachIndex(shape, [&](const Index& index) {
      Index to = index;
      for (int axis = 0; axis < shape.rank(); ++axis)
        if (mask >> axis & 1) to[axis] = 0;
      members[Flat(result, to)].push_back(Flat(shape, index));
    });
  }
};

double Naive(ReduceOp op, const std::vector<double>& x, const std::vector<size_t>& members) {
  double sum = 0, abs = 0, square = 0, product = 1, max = -kInf, min = kInf;
  for (size_t i : members) {
    sum += x[i];
    abs += std::abs(x[i]);
    square += x[i] * x[i];
    product *= x[i];
    max = std::max(max, x[i]);
    min = std::min(min, x[i]);
  }
  switch (op) {
    case ReduceOp::kSum:
      return sum;
    case ReduceOp::kMean:
      return sum / static_cast<double>(members.size());
    case ReduceOp::kMax:
      return max;
    case ReduceOp::kMin:
      return min;
    case ReduceOp::kProd:
      return product;
    case ReduceOp::kL1:
      return abs;
    case ReduceOp::kL2:
      return std::sqrt(square);
    default:
      return square;
  }
}

// |result − float64| ≤ 8·eps·√K·Σ|terms|. For products the bound is relative, except for underflow.
double Tolerance(ReduceOp op, const std::vector<double>& x, const std::vector<size_t>& members,
                 DType dtype) {
  double magnitude = 0;
  const double k = std::sqrt(static_cast<double>(members.size()));
  switch (op) {
    case ReduceOp::kMax:
    case ReduceOp::kMin:
      return 0;
    case ReduceOp::kSum:
    case ReduceOp::kL1:
      magnitude = Naive(ReduceOp::kL1, x, members);
      break;
    case ReduceOp::kMean:
      magnitude = Naive(ReduceOp::kL1, x, members) / static_cast<double>(members.size());
      break;
    default:
      magnitude = std::abs(Naive(op, x, members));
  }
  return 8 * Epsilon(dtype) * k * magnitude + test::Smallest(dtype);
}

std::vector<int64_t> AxesOf(Random& random, uint32_t mask, int rank) {
  std::vector<int64_t> axes;
  for (int axis = 0; axis < rank; ++axis)
    if (mask >> axis & 1) axes.push_back(random.Coin() ? axis : axis - rank);
  return axes;
}

TEST(Reduce, RandomShapesAndViewsAgreeWithFloat64Loops) {
  Random random(1);
  constexpr DType kTypes[] = {kFloat32, kFloat32, kFloat64, kBFloat16, kFloat16};
  for (int round = 0; round < 400; ++round) {
    const int rank = static_cast<int>(random.Int(1, 5));
    const Shape shape = random.Dims(rank, 1, rank <= 2 ? 70 : 9);
    const DType dtype = kTypes[random.Int(0, 4)];
    const ReduceOp op = kOps[round % 8];
    const Tensor x = AnyTensor(random, shape, dtype);
    const auto mask = static_cast<uint32_t>(random.Int(1, (1 << rank) - 1));
    const bool keepdims = random.Coin();
    const Tensor y = Reduce(op, x, AxesOf(random, mask, rank), keepdims);
    SCOPED_TRACE("round " + std::to_string(round) + " shape " + shape.ToString() + " mask " +
                 std::to_string(mask));
    const Grouping groups(shape, mask);
    ASSERT_EQ(y.data_type(), dtype);
    ASSERT_EQ(y.rank(), keepdims ? rank : rank - std::popcount(mask));
    if (keepdims) {
      ASSERT_EQ(y.shape(), groups.result);
    }
    const auto xs = Values(x), ys = Values(y);
    ASSERT_EQ(ys.size(), groups.members.size());
    for (size_t i = 0; i < ys.size(); ++i)
      ASSERT_NEAR(ys[i], Naive(op, xs, groups.members[i]),
                  Tolerance(op, xs, groups.members[i], dtype));
  }
}

TEST(Reduce, BackwardOfRandomShapesAgreesWithFormulas) {
  Random random(2);
  for (int round = 0; round < 240; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, 7);
    const DType dtype = random.Coin() ? kFloat32 : kFloat64;
    const ReduceOp op = kOps[round % 8];
    // Whole numbers for max and min, so that there are ties; zeros for prod and L2.
    const bool whole = random.Coin();
    Tensor x = AnyTensor(random, shape, dtype, -2.5, 2.5);
    if (whole) x = x.AsType(kInt32).AsType(dtype);
    const auto mask = static_cast<uint32_t>(random.Int(1, (1 << rank) - 1));
    const auto axes = AxesOf(random, mask, rank);
    const bool keepdims = random.Coin();
    const Tensor y = Reduce(op, x, axes, keepdims);
    const Tensor dy = AnyTensor(random, y.shape(), dtype);
    const Tensor dx = ReduceBackward(op, dy, x, y, axes, keepdims);
    ASSERT_EQ(dx.shape(), shape);
    const Grouping groups(shape, mask);
    const auto xs = Values(x), ys = Values(y), dys = Values(dy), dxs = Values(dx);
    for (size_t g = 0; g < groups.members.size(); ++g) {
      const auto& members = groups.members[g];
      const auto k = static_cast<double>(members.size());
      for (size_t i : members) {
        double expected = 0;
        switch (op) {
          case ReduceOp::kSum:
            expected = dys[g];
            break;
          case ReduceOp::kMean:
            expected = dys[g] / k;
            break;
          case ReduceOp::kMax:
          case ReduceOp::kMin: {
            double ties = 0;
            for (size_t j : members) ties += xs[j] == ys[g];
            expected = xs[i] == ys[g] ? dys[g] / ties : 0;
            break;
          }
          case ReduceOp::kProd:
            expected = dys[g];
            for (size_t j : members) expected *= j == i ? 1 : xs[j];
            break;
          case ReduceOp::kL1:
            expected = dys[g] * ((xs[i] > 0) - (xs[i] < 0));
            break;
          case ReduceOp::kL2:
            expected = ys[g] == 0 ? 0 : dys[g] * xs[i] / ys[g];
            break;
          default:
            expected = 2 * xs[i] * dys[g];
        }
        ASSERT_NEAR(dxs[i], expected, 8 * Epsilon(dtype) * std::sqrt(k) * std::abs(expected))
            << "round " << round << " op " << static_cast<int>(op) << " shape " << shape;
      }
    }
  }
}

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
  const int before = NumThreads();
  struct Case {
    Shape shape;
    std::vector<int64_t> axes;
  };
  for (const auto& [shape, axes] : {Case{{8, 16, 31, 33}, {0, 2, 3}}, Case{{5000, 65}, {0}},
                                    Case{{300'001}, {}}, Case{{65, 5000}, {1}}}) {
    const Tensor x = RandomTensor(random, shape, kFloat64);
    SetNumThreads(1);
    const auto one = Values(Reduce(ReduceOp::kSum, x, axes));
    for (int threads : {2, 3, 7}) {
      SetNumThreads(threads);
      EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, axes)), one) << shape << " threads " << threads;
    }
  }
  SetNumThreads(before);
}

TEST(Reduce, LargeSumsByRowsAndByColumns) {
  Random random(4);
  struct Case {
    Shape shape;
    uint32_t mask;
  };
  for (const auto& [shape, mask] :
       {Case{{6, 40, 20, 21}, 0b1101}, Case{{3000, 48}, 0b01}, Case{{48, 3000}, 0b10},
        Case{{40'000, 3}, 0b10}, Case{{40'000, 3}, 0b01}, Case{{2, 20'000, 2}, 0b101},
        Case{{130'000}, 0b1}, Case{{17, 2000, 5}, 0b010}}) {
    for (const bool view : {false, true}) {
      const Tensor x = view ? test::RandomView(random, shape) : RandomTensor(random, shape);
      const auto xs = Values(x);
      const Grouping groups(shape, mask);
      const auto axes = AxesOf(random, mask, shape.rank());
      for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kSumSquare}) {
        const auto ys = Values(Reduce(op, x, axes));
        for (size_t i = 0; i < ys.size(); ++i)
          ASSERT_NEAR(ys[i], Naive(op, xs, groups.members[i]),
                      Tolerance(op, xs, groups.members[i], kFloat32))
              << shape << " mask " << mask;
      }
    }
  }
}

TEST(Reduce, Integers) {
  const Tensor x = FromValues({2, 3}, {1, -2, 3, 4, 5, -6}, kInt32);
  EXPECT_EQ(Reduce(ReduceOp::kSum, x).data_type(), kInt64);
  EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, {1})), (std::vector<double>{2, 3}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kProd, x, {0})), (std::vector<double>{4, -10, -18}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kL1, x)), (std::vector<double>{21}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kSumSquare, x)), (std::vector<double>{91}));
  EXPECT_EQ(Reduce(ReduceOp::kMax, x).data_type(), kInt32);
  EXPECT_EQ(Values(Reduce(ReduceOp::kMin, x, {1})), (std::vector<double>{-2, -6}));
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
  EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, {0})), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kProd, x, {0})), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(Reduce(ReduceOp::kL2, x).Item(), 0);
  EXPECT_TRUE(std::isnan(Reduce(ReduceOp::kMean, x).Item()));
  EXPECT_EQ(Reduce(ReduceOp::kMax, x, {1}).shape(), Shape({0}));
  ExpectError<std::invalid_argument>([&] { Reduce(ReduceOp::kMax, x, {0}); },
                                     "[ReduceMax] x (0, 3) has no elements");
  const Tensor y = Reduce(ReduceOp::kSum, x, {0});
  EXPECT_EQ(ReduceBackward(ReduceOp::kSum, y, x, y, {0}, false).shape(), x.shape());
}

TEST(Reduce, ScalarsAndLengthOne) {
  const Tensor x = Full({}, 3);
  EXPECT_EQ(Reduce(ReduceOp::kSum, x).Item(), 3);
  EXPECT_EQ(Reduce(ReduceOp::kSum, x).rank(), 0);
  const Tensor ones = Full({1, 1, 1}, -2);
  EXPECT_EQ(Reduce(ReduceOp::kL1, ones, {1}, true).shape(), Shape({1, 1, 1}));
  EXPECT_EQ(Reduce(ReduceOp::kL1, ones, {1}).Item(), 2);
  EXPECT_EQ(Reduce(ReduceOp::kMax, ones).Item(), -2);
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
  EXPECT_EQ(dx, (std::vector<double>{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(Reduce(ReduceOp::kMax, Full({5}, -kInf)).Item(), -kInf);
}

TEST(Reduce, BroadcastInputs) {
  const Tensor x = FromValues({3, 1}, {1, 2, 3}).Broadcast({3, 100});
  EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, {1})), (std::vector<double>{100, 200, 300}));
  EXPECT_EQ(Values(Reduce(ReduceOp::kSum, x, {0})), std::vector<double>(100, 6));
}

TEST(Reduce, Errors) {
  const Tensor x({2, 3});
  const Tensor ints = Full({2}, 1, nullptr, kInt32);
  ExpectError<std::invalid_argument>([&] { Reduce(ReduceOp::kSum, x, {2}); }, "[ReduceSum]");
  ExpectError<std::invalid_argument>([&] { Reduce(ReduceOp::kSum, x, {-3}); }, "[ReduceSum]");
  ExpectError<std::invalid_argument>(
      [&] {
        Reduce(ReduceOp::kSum, x, {1, -1});
      },
      "axis -1 appears twice for shape (2, 3)");
  ExpectError<std::invalid_argument>([&] { Reduce(ReduceOp::kSum, Tensor()); }, "x is an empty");
  ExpectError<std::invalid_argument>([&] { Reduce(static_cast<ReduceOp>(99), x); }, "99");
  ExpectError<TypeError>([&] { Reduce(ReduceOp::kMean, ints); }, "[ReduceMean] needs a float");
  ExpectError<TypeError>([&] { Reduce(ReduceOp::kL2, ints); }, "[ReduceL2] needs a float");
  ExpectError<TypeError>([&] { ReduceBackward(ReduceOp::kSum, ints, ints, ints, {}, false); },
                         "float type");
  ExpectError<std::invalid_argument>(
      [&] { ReduceBackward(ReduceOp::kSum, Tensor({3}), x, Tensor(), {1}, false); },
      "dy must have shape (2,), got");
  ExpectError<std::invalid_argument>(
      [&] { ReduceBackward(ReduceOp::kMax, Tensor({2}), x, Tensor(), {1}, false); },
      "y is an empty");
}

TEST(SumTo, UndoesBroadcasting) {
  Random random(5);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, 6);
    const int drop = static_cast<int>(random.Int(0, rank));
    uint32_t mask = (1u << drop) - 1;
    Shape target;
    for (int axis = drop; axis < rank; ++axis) {
      const bool sum = random.Coin();
      target.push_back(sum ? 1 : shape[axis]);
      mask |= static_cast<uint32_t>(sum) << axis;
    }
    const Tensor x = AnyTensor(random, shape);
    const Tensor y = SumTo(x, target);
    ASSERT_EQ(y.shape(), target);
    const Grouping groups(shape, mask);
    const auto xs = Values(x), ys = Values(y);
    for (size_t i = 0; i < ys.size(); ++i)
      ASSERT_NEAR(ys[i], Naive(ReduceOp::kSum, xs, groups.members[i]),
                  Tolerance(ReduceOp::kSum, xs, groups.members[i], kFloat32));
  }
}

TEST(SumTo, SameShapeIsTheSameTensorAndMisfitsRaise) {
  const Tensor x = Full({2, 3}, 1);
  EXPECT_EQ(SumTo(x, {2, 3}).block(), x.block());
  EXPECT_EQ(SumTo(x, {}).Item(), 6);
  ExpectError<std::invalid_argument>([&] { SumTo(x, {2}); },
                                     "[SumTo] shape (2,) does not broadcast to x (2, 3)");
  ExpectError<std::invalid_argument>([&] { SumTo(x, {1, 2, 3}); }, "does not broadcast");
}

TEST(ArgMax, RandomShapesTakeTheFirstOfEquals) {
  Random random(6);
  constexpr DType kTypes[] = {kFloat32, kFloat64, kBFloat16, kInt32, kInt64, kUInt8};
  for (int round = 0; round < 300; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, rank == 1 ? 200 : 20);
    const DType dtype = kTypes[random.Int(0, 5)];
    const bool largest = random.Coin(), keepdims = random.Coin();
    // Few different values, so that there are many ties.
    Tensor x = AnyTensor(random, shape, kFloat64, 0, 6).AsType(kInt32).AsType(dtype);
    if (IsFloat(dtype) && random.Coin()) x = AnyTensor(random, shape, dtype);
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const int64_t given = random.Coin() ? axis : axis - rank;
    const Tensor y = largest ? ArgMax(x, given, keepdims) : ArgMin(x, given, keepdims);
    ASSERT_EQ(y.data_type(), kInt64);
    const Grouping groups(shape, 1u << axis);
    ASSERT_EQ(y.rank(), keepdims ? rank : rank - 1);
    const auto xs = Values(x), ys = Values(y);
    for (size_t g = 0; g < groups.members.size(); ++g) {
      const auto& members = groups.members[g];
      size_t best = 0;
      for (size_t i = 1; i < members.size(); ++i) {
        const double value = xs[members[i]], top = xs[members[best]];
        if (largest ? value > top : value < top) best = i;
      }
      ASSERT_EQ(ys[g], static_cast<double>(best)) << "round " << round << " shape " << shape;
    }
  }
}

TEST(ArgMax, FirstNanWins) {
  const Tensor x = FromValues({2, 4}, {1, kNan, 9, kNan, 4, 2, kInf, 0});
  EXPECT_EQ(Values(ArgMax(x, 1)), (std::vector<double>{1, 2}));
  EXPECT_EQ(Values(ArgMin(x, 1)), (std::vector<double>{1, 3}));
  EXPECT_EQ(Values(ArgMax(x, 0)), (std::vector<double>{1, 0, 1, 0}));
  EXPECT_EQ(Values(ArgMin(x.Transpose(), 0)), (std::vector<double>{1, 3}));
  EXPECT_EQ(Values(ArgMax(Full({20}, -kInf), 0)), (std::vector<double>{0}));
}

TEST(ArgMax, Errors) {
  ExpectError<std::invalid_argument>(
      [] {
        ArgMax(Tensor({2, 0}), 1);
      },
      "[ArgMax] axis 1 of x (2, 0) has no elements");
  ExpectError<std::invalid_argument>([] { ArgMin(Tensor({2}), 1); }, "[ArgMin]");
  ExpectError<std::invalid_argument>([] { ArgMin(Tensor(), 0); }, "[ArgMin] x is an empty");
  EXPECT_EQ(ArgMax(Tensor({0, 4}), 1).shape(), Shape({0}));
}

TEST(CountTopK, AgreesWithSorting) {
  Random random(7);
  for (int round = 0; round < 60; ++round) {
    const int64_t n = random.Int(0, 50), c = random.Int(1, 30), k = random.Int(1, 12);
    const Tensor scores = AnyTensor(random, {n, c}, kFloat32, 0, 9).AsType(kInt32).AsType(kFloat32);
    const Tensor labels = RandomTensor(random, {n}, kFloat64, 0, static_cast<double>(c))
                              .AsType(random.Coin() ? kInt32 : kInt64);
    const auto s = Values(scores), l = Values(labels);
    int64_t hits = 0;
    for (int64_t i = 0; i < n; ++i) {
      int64_t above = 0;
      for (int64_t j = 0; j < c; ++j) above += s[i * c + j] > s[i * c + static_cast<int64_t>(l[i])];
      hits += above < k;
    }
    ASSERT_EQ(CountTopK(scores, labels, k), hits);
  }
}

TEST(CountTopK, BadLabelsAndNan) {
  const Tensor scores = FromValues({2, 3}, {kNan, kNan, kNan, 1, 2, 3});
  EXPECT_EQ(CountTopK(scores, FromValues({2}, {0, 2}, kInt32), 1), 1);
  ExpectError<std::out_of_range>(
      [&] {
        CountTopK(scores, FromValues({2}, {0, 3}, kInt32), 1);
      },
      "[CountTopK] label 3 of row 1 is outside [0, 3)");
  ExpectError<std::out_of_range>(
      [&] {
        CountTopK(scores, FromValues({2}, {-1, 0}, kInt64), 1);
      },
      "label -1 of row 0");
  ExpectError<TypeError>([&] { CountTopK(scores, Full({2}, 0), 1); }, "int32 or int64");
  ExpectError<std::invalid_argument>([&] { CountTopK(scores, Full({3}, 0, nullptr, kInt32), 1); },
                                     "labels must have shape (2,)");
  ExpectError<std::invalid_argument>([&] { CountTopK(Full({3}, 0), Tensor(), 1); }, "labels");
  ExpectError<std::invalid_argument>([&] { CountTopK(scores, Full({2}, 0, nullptr, kInt32), 0); },
                                     "k must be at least 1");
}

}  // namespace
}  // namespace singa
