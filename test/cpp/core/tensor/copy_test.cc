#include "core/tensor/copy.h"

#include "core/tensor/dtype_switch.h"
#include "core/tensor/strided.h"
#include "support.h"

namespace singa::test {
namespace {

// An element of a tensor, found without the code under test.
template <class T>
T& At(const Tensor& t, const Index& index) {
  int64_t offset = 0;
  for (int axis = 0; axis < t.rank(); ++axis) offset += index[axis] * t.strides()[axis];
  return static_cast<T*>(t.raw_data())[offset];
}

template <class T>
Tensor Counting(const Shape& shape) {
  Tensor t(shape, nullptr, kDTypeOf<T>);
  T* data = static_cast<T*>(t.raw_data());
  for (int64_t i = 0; i < t.size(); ++i) data[i] = Convert<T>(static_cast<float>(i % 97));
  return t;
}

Tensor View(const Tensor& t, const Shape& shape, const Strides& strides, int64_t offset = 0) {
  return Tensor(t.block(), shape, strides, offset, t.data_type());
}

TEST(StridedSpace, MergesWhatAllArraysWalkAsOneAxis) {
  const Shape shape{4, 1, 5, 6};
  const Strides dense = ContiguousStrides(shape);
  EXPECT_EQ((StridedSpace<2>(shape, {dense, dense}).rank()), 1);
  EXPECT_TRUE((StridedSpace<2>(shape, {dense, dense}).dense(1)));
  // Axes are not merged across padded rows. An axis of stride 0 merges only with another one.
  const StridedSpace<2> padded(shape, {dense, Strides{80, 80, 8, 1}});
  EXPECT_EQ(padded.rank(), 3);
  const StridedSpace<2> rows(shape, {dense, Strides{0, 0, 0, 1}});
  EXPECT_EQ(rows.rank(), 2);
  EXPECT_EQ(rows.length(0), 20);
  EXPECT_EQ(rows.stride(1, 0), 0);
  // Arrays that are transposed in the same way are dense.
  const Strides transposed{1, 1, 4, 20};
  EXPECT_TRUE((StridedSpace<2>(shape, {transposed, transposed}).dense(0)));
}

TEST(StridedSpace, WalksAnyPartOnceInOrder) {
  const Shape shape{3, 4, 5};
  const StridedSpace<2> space(shape, {ContiguousStrides(shape), Strides{1, 15, 3}});
  for (int64_t begin = 0; begin <= 60; begin += 7) {
    for (int64_t end = begin; end <= 60; end += 11) {
      std::vector<int64_t> seen;
      space.Walk(begin, end, [&](const StridedSpace<2>::Offsets& offset, int64_t n) {
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = offset[0] + i * space.inner_stride(0);
          seen.push_back(at);
          const int64_t expected = at / 20 + at / 5 % 4 * 15 + at % 5 * 3;
          EXPECT_EQ(offset[1] + i * space.inner_stride(1), expected);
        }
      });
      ASSERT_EQ(static_cast<int64_t>(seen.size()), end - begin);
      for (int64_t i = 0; i < end - begin; ++i) EXPECT_EQ(seen[i], begin + i);
    }
  }
}

template <class T>
class CopyTyped : public testing::Test {};
using AllTypes =
    testing::Types<float, double, BFloat16, Float16, int8_t, uint8_t, int32_t, int64_t, bool>;
TYPED_TEST_SUITE(CopyTyped, AllTypes);

// All pairs of types, from and to strided views.
TYPED_TEST(CopyTyped, ConvertsToEveryType) {
  using From = TypeParam;
  const Tensor source = Counting<From>({7, 9});
  const Tensor view = View(source, {9, 3}, {1, 18}, 0);  // transposed, every second row
  for (int to = 0; to < kNumDataType; ++to) {
    SwitchAll(static_cast<DType>(to), "test", [&]<class To>() {
      Tensor out(Shape{9, 6}, nullptr, kDTypeOf<To>);
      StridedFill(out, 1);
      const Tensor every_other = View(out, {9, 3}, {6, 2}, 1);
      StridedCopy(view, every_other);
      ForEachIndex(out.shape(), [&](const Index& i) {
        const double got = Convert<double>(At<To>(out, i));
        if (i[1] % 2 == 0) {
          EXPECT_EQ(got, 1) << "written outside of the view";
          return;
        }
        // Counting gives small whole numbers, which all types but bool represent exactly.
        double expected = static_cast<double>((i[1] / 2 * 18 + i[0]) % 97);
        if (std::is_same_v<From, bool> || std::is_same_v<To, bool>) expected = expected != 0;
        EXPECT_EQ(got, expected) << DTypeName(kDTypeOf<From>) << " to "
                                 << DTypeName(out.data_type());
      });
    });
  }
}

TYPED_TEST(CopyTyped, TransposesAndBroadcasts) {
  using T = TypeParam;
  for (const Shape& shape : {Shape{2, 37, 65}, Shape{1, 8, 9}, Shape{3, 100, 7}}) {
    const Tensor source = Counting<T>({shape[0], shape[2], shape[1]});
    const Tensor view =
        View(source, shape, {source.strides()[0], source.strides()[2], source.strides()[1]});
    Tensor out(shape, nullptr, kDTypeOf<T>);
    StridedCopy(view, out);
    ForEachIndex(shape, [&](const Index& i) {
      ASSERT_EQ(Convert<float>(At<T>(out, i)), Convert<float>(At<T>(source, {i[0], i[2], i[1]})));
    });
  }
  const Tensor row = Counting<T>({5});
  Tensor out(Shape{3, 5, 2}, nullptr, kDTypeOf<T>);
  StridedCopy(View(row, {3, 5, 2}, {0, 1, 0}), out);
  ForEachIndex(out.shape(), [&](const Index& i) {
    EXPECT_EQ(Convert<float>(At<T>(out, i)), Convert<float>(At<T>(row, {i[1]})));
  });
}

TYPED_TEST(CopyTyped, Fills) {
  using T = TypeParam;
  Tensor t(Shape{4, 6}, nullptr, kDTypeOf<T>);
  StridedFill(t, 0);
  StridedFill(View(t, {2, 3}, {12, 2}, 1), 3.75);
  const float expected = std::is_same_v<T, bool> ? 1.0f : kIsFloatType<T> ? 3.75f : 3.0f;
  ForEachIndex(t.shape(), [&](const Index& i) {
    EXPECT_EQ(Convert<float>(At<T>(t, i)), i[0] % 2 == 0 && i[1] % 2 == 1 ? expected : 0);
  });
}

TEST(StridedCopy, LargeTensorsForAnyNumberOfThreads) {
  const Shape shape{64, 33, 97};
  const Tensor source = Counting<float>({33, 97, 64});
  const Tensor view = View(source, shape, {1, 97 * 64, 64});
  for (const int threads : {1, 2, 5}) {
    const ThreadCount scope(threads);
    Tensor out(shape);
    Tensor wide(shape, nullptr, kFloat64);
    StridedCopy(view, out);
    StridedCopy(view, wide);
    ForEachIndex(shape, [&](const Index& i) {
      const float expected = At<float>(source, {i[1], i[2], i[0]});
      ASSERT_EQ(At<float>(out, i), expected);
      ASSERT_EQ(At<double>(wide, i), expected);
    });
  }
}

TEST(StridedCopy, ReversedAndOverlapping) {
  Tensor t = Counting<int32_t>({10});
  StridedCopy(View(t, {10}, {-1}, 9), t);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(At<int32_t>(t, {i}), 9 - i);
  StridedCopy(View(t, {9}, {1}, 0), View(t, {9}, {1}, 1));
  EXPECT_EQ(At<int32_t>(t, {0}), 9);
  for (int i = 1; i < 10; ++i) EXPECT_EQ(At<int32_t>(t, {i}), 10 - i);
}

TEST(StridedCopy, EmptyAndScalar) {
  StridedCopy(Tensor(Shape{0, 3}), Tensor(Shape{0, 3}, nullptr, kInt64));
  StridedFill(Tensor(Shape{3, 0}), 1);
  const Tensor one = Counting<float>({});
  Tensor out(Shape{}, nullptr, kInt8);
  StridedFill(out, 7);
  StridedCopy(one, out);
  EXPECT_EQ(At<int8_t>(out, {}), 0);
  EXPECT_THROW(StridedCopy(one, Tensor(Shape{1})), std::invalid_argument);
}

TEST(Convert, OutOfRangeIsDefined) {
  constexpr float inf = kInf, nan = kNan;
  EXPECT_EQ(Convert<int32_t>(inf), std::numeric_limits<int32_t>::max());
  EXPECT_EQ(Convert<int32_t>(-inf), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Convert<int32_t>(nan), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Convert<int32_t>(-2147483648.0), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Convert<int64_t>(1e30), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(Convert<int64_t>(-1e30f), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(Convert<int64_t>(9007199254740992.0), int64_t{1} << 53);
  EXPECT_EQ(Convert<int32_t>(-2.9f), -2);
  EXPECT_EQ(Convert<uint8_t>(-1.0f), 255);  // wraps, like a cast from int32
  EXPECT_EQ(Convert<uint8_t>(int64_t{300}), 44);
  EXPECT_TRUE(Convert<bool>(nan));
  EXPECT_TRUE(Convert<bool>(0.25));
  EXPECT_FALSE(Convert<bool>(-0.0f));
  EXPECT_EQ(static_cast<float>(Convert<Float16>(65519.0)), 65504.0f);
  EXPECT_EQ(static_cast<float>(Convert<Float16>(65520.0)), inf);
  EXPECT_EQ(static_cast<float>(Convert<BFloat16>(1.00390625f)), 1.0f);  // a tie goes to even
  EXPECT_TRUE(std::isnan(static_cast<float>(Convert<BFloat16>(nan))));
}

}  // namespace
}  // namespace singa::test
