// TopK and CumSum against stable sorts and sums of single lines.

#include "singa/operation/sort.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/operation/copied.h"

namespace singa {
namespace {

using test::AnyTensor;
using test::AnyType;
using test::Doubles;
using test::Epsilon;
using test::ExpectError;
using test::Flat;
using test::ForEachIndex;
using test::FromValues;
using test::Index;
using test::Random;
using test::Values;
using test::Whole;

/// Calls visit(line, place) for each line along an axis; place(i) is the flat position of element
/// i.
template <class Visit>
void ForEachLine(const Shape& shape, int axis, const Visit& visit) {
  Shape lines = shape;
  lines[axis] = 1;
  ForEachIndex(lines, [&](const Index& first) {
    visit([&](int64_t i, const Shape& of) {
      Index index = first;
      index[static_cast<size_t>(axis)] = i;
      return Flat(of, index);
    });
  });
}

TEST(TopK, RandomShapesTypesAndTies) {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, 1, round % 10 == 0 ? 40 : 6);
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const int64_t length = shape[axis], k = random.Int(0, length);
    const bool largest = random.Coin();
    const Tensor x =
        AnyTensor(random, shape, kFloat64, -6, 6).AsType(kInt32).AsType(AnyType(random));
    const std::vector<Tensor> top = TopK(x, k, random.Coin() ? axis : axis - rank, largest);
    Shape y_shape = shape;
    y_shape[axis] = k;
    ASSERT_EQ(top[0].shape(), y_shape);
    ASSERT_EQ(top[0].data_type(), x.data_type());
    ASSERT_EQ(top[1].data_type(), kInt64);
    const Doubles xs = Values(x), values = Values(top[0]), indices = Values(top[1]);
    ForEachLine(shape, axis, [&](const auto& place) {
      std::vector<int64_t> order(static_cast<size_t>(length));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const double va = xs[place(a, shape)], vb = xs[place(b, shape)];
        return largest ? va > vb : va < vb;
      });
      for (int64_t i = 0; i < k; ++i) {
        const int64_t from = order[static_cast<size_t>(i)];
        ASSERT_EQ(indices[place(i, y_shape)], static_cast<double>(from)) << "round " << round;
        ASSERT_EQ(values[place(i, y_shape)], xs[place(from, shape)]);
      }
    });
  }
}

TEST(TopK, NanIsTheLargestAndZerosAreEqual) {
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    const Tensor x = FromValues({7}, {0, NAN, -0.0, HUGE_VAL, -HUGE_VAL, -NAN, 0}, dtype);
    EXPECT_EQ(Values(TopK(x, 7)[1]), (Doubles{1, 5, 3, 0, 2, 6, 4}));
    EXPECT_EQ(Values(TopK(x, 7, 0, false)[1]), (Doubles{4, 0, 2, 6, 3, 1, 5}));
  }
}

TEST(TopK, Errors) {
  const Tensor x({2, 3});
  ExpectError<std::invalid_argument>([&] { TopK(x, 4); },
                                     "[TopK] k must be in [0, 3], the length of axis -1 of x (2, "
                                     "3), got 4");
  ExpectError<std::invalid_argument>([&] { TopK(x, -1); }, "got -1");
  ExpectError<std::invalid_argument>([&] { TopK(x, 1, 2); }, "[TopK]");
  ExpectError<std::invalid_argument>([&] { TopK(Tensor(), 1); }, "x is an empty");
}

TEST(CumSum, RandomShapesAndTypes) {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    const int rank = static_cast<int>(random.Int(1, 4));
    const Shape shape = random.Dims(rank, round % 9 == 0 ? 0 : 1, round % 10 == 0 ? 40 : 6);
    const auto axis = static_cast<int>(random.Int(0, rank - 1));
    const bool exclusive = random.Coin(), reverse = random.Coin();
    const DType dtype = AnyType(random);
    const Tensor x = Whole(random, shape, dtype);
    const Tensor y = CumSum(x, random.Coin() ? axis : axis - rank, exclusive, reverse);
    ASSERT_EQ(y.shape(), shape);
    ASSERT_EQ(y.data_type(), IsFloat(dtype) ? dtype : kInt64);
    const Doubles xs = Values(x), ys = Values(y);
    if (shape.Count() == 0) continue;
    ForEachLine(shape, axis, [&](const auto& place) {
      double sum = 0;
      for (int64_t i = 0; i < shape[axis]; ++i) {
        const size_t at = place(reverse ? shape[axis] - 1 - i : i, shape);
        const double want = exclusive ? sum : sum + xs[at];
        sum += xs[at];
        ASSERT_NEAR(ys[at], want, IsFloat(dtype) ? Epsilon(dtype) * want : 0) << "round " << round;
      }
    });
  }
}

TEST(CumSum, LongSumsHaveOneRounding) {
  const int64_t n = 100'000;
  const Doubles ys = Values(CumSum(Full({n}, 0.1, nullptr, kFloat32), 0));
  const auto tenth = static_cast<double>(0.1f);
  for (int64_t i : {int64_t{9}, n / 2, n - 1})
    ASSERT_EQ(ys[static_cast<size_t>(i)],
              static_cast<double>(static_cast<float>(tenth * static_cast<double>(i + 1))));
}

}  // namespace
}  // namespace singa
