#include "model/operation/padded_layout.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

TEST(Where, SelectsWithBroadcasting) {
  const Tensor condition = FromValues({2, 1}, {0, 1}, kBool);
  const Tensor x = FromValues({3}, {1, 2, 3});
  const Tensor y = FromValues({2, 3}, {10, 20, 30, 40, 50, 60});
  const Tensor z = Where(condition, x, y);
  EXPECT_EQ(z.shape(), (Shape{2, 3}));
  EXPECT_EQ(Values(z), (Vector{10, 20, 30, 1, 2, 3}));
}

TEST(Where, AnyTypeIsACondition) {
  // A condition of 0.5 is true, also for integer x and y: it must not be converted to their type.
  const Vector expected{2, 1, 1, 1};
  for (const DType dtype : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    for (const DType value : {kFloat32, kFloat64, kBFloat16, kInt8, kInt32, kInt64, kBool}) {
      const Tensor c = FromValues({4}, {0, 0.5, -1, 1e-7}, dtype);
      const Vector got =
          Values(Where(c, Full({}, 1, nullptr, value), Full({4}, 0, nullptr, value)));
      EXPECT_EQ(got, (Vector{0, 1, 1, 1})) << DTypeName(dtype) << " " << DTypeName(value);
    }
  }
  for (const DType dtype : {kInt8, kUInt8, kInt32, kInt64, kBool}) {
    const Tensor c = FromValues({4}, {0, 3, 1, 100}, dtype);
    EXPECT_EQ(Values(Where(c, Full({4}, 1), Full({4}, 2))), expected);
  }
  // Types are promoted.
  const Tensor mixed =
      Where(FromValues({2}, {1, 0}), Full({2}, 3, nullptr, kInt32), Full({2}, 0.5));
  EXPECT_EQ(mixed.data_type(), kFloat32);
  EXPECT_EQ(Values(mixed), (Vector{3, 0.5}));
}

TEST(Where, ViewsAndLayouts) {
  Random random(1);
  const Tensor c = AnyTensor(random, {4, 5, 600}), x = RandomView(random, {4, 5, 600}, kBFloat16);
  const Tensor y = RandomView(random, {5, 1});
  const Tensor z = Where(Binary(BinaryOp::kLess, c, Full({}, 0)), x, y);
  const Vector vc = Values(c), vx = Values(x), vy = Values(y), vz = Values(z);
  for (size_t i = 0; i < vc.size(); ++i) ASSERT_EQ(vz[i], vc[i] < 0 ? vx[i] : vy[i / 600 % 5]);
  const Tensor padded = Where(PaddedLayout::Of(c), PaddedLayout::Of(x), y);
  EXPECT_EQ(Values(padded), Values(Where(c, x, y)));
}

TEST(Where, Backward) {
  const Tensor condition = FromValues({2, 3}, {0, 1, 0, 1, 1, 0}, kBool);
  const Tensor dy = FromValues({2, 3}, {1, 2, 3, 4, 5, 6});
  const std::vector<Tensor> d = WhereBackward(dy, condition, {3}, {2, 1}, true, true);
  EXPECT_EQ(d[0].shape(), (Shape{3}));
  EXPECT_EQ(d[1].shape(), (Shape{2, 1}));
  EXPECT_EQ(Values(d[0]), (Vector{4, 7, 0}));
  EXPECT_EQ(Values(d[1]), (Vector{4, 6}));
  EXPECT_TRUE(WhereBackward(dy, condition, {3}, {2, 1}, false, true)[0].empty());
  EXPECT_TRUE(WhereBackward(dy, condition, {3}, {2, 1}, true, false)[1].empty());
}

TEST(Axpy, AddsInPlace) {
  Random random(2);
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) {
    const Tensor x = AnyTensor(random, {7, 90}), y = RandomView(random, {7, 90}, dtype);
    const Vector vx = Values(x), vy = Values(y);
    Vector want(vx.size()), tolerance(vx.size());
    for (size_t i = 0; i < vx.size(); ++i) {
      want[i] = vy[i] - 0.5 * vx[i];
      tolerance[i] = Epsilon(kFloat32);
    }
    Axpy(-0.5, x, y);
    ExpectNear(y, want, tolerance, "axpy");
  }
  const Tensor ints = FromValues({2}, {1, 2}, kInt64);
  Axpy(3, ints, ints);
  EXPECT_EQ(Values(ints), (Vector{4, 8}));
  const Tensor t = FromValues({4}, {1, 2, 3, 4});
  Axpy(1, t.SliceAxis(0, 0, 3), t.SliceAxis(0, 1, 4));
  EXPECT_EQ(Values(t), (Vector{1, 3, 5, 7}));
}

TEST(Axpy, DenseBFloat16GivesTheBitsOfViews) {
  Random random(4);
  for (const Shape& shape : {Shape{1, 2}, Shape{3, 37}, Shape{259, 301}}) {
    for (double alpha : {1.0, -0.3}) {
      Vector values = Values(RandomTensor(random, shape, kBFloat16));
      values[0] = std::nan("");
      values.back() = kInf;
      const Tensor x = FromValues(shape, values, kBFloat16);
      const Tensor strided = RandomView(random, shape, kBFloat16);
      const Tensor dense = strided.Contiguous().Clone();
      Axpy(alpha, x, dense);
      Axpy(alpha, x, strided);
      const Vector got = Values(dense), want = Values(strided);
      EXPECT_TRUE(std::isnan(got[0]) && std::isnan(want[0]));
      for (size_t i = 1; i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << i;
    }
  }
}

TEST(Axpy, KeepsTheTargetsLayout) {
  Random random(3);
  const Tensor x = RandomTensor(random, {3, 4}), y = RandomTensor(random, {3, 4});
  const Tensor px = PaddedLayout::Of(x), py = PaddedLayout::Of(y), py2 = PaddedLayout::Of(y);
  Axpy(2, x, py);
  Axpy(2, px, py2);
  EXPECT_TRUE(IsPaddedWithZeros(py));
  EXPECT_TRUE(IsPaddedWithZeros(py2));
  Axpy(2, px, y);
  EXPECT_EQ(Values(y), Values(py));
  EXPECT_EQ(Values(y), Values(py2));
}

TEST(Axpy, TakesItsFactorFromATensor) {
  Random random(5);
  const Tensor alpha = FromValues({1}, {-0.5});
  for (const DType dtype : {kFloat64, kFloat32, kBFloat16}) {
    const Tensor x = AnyTensor(random, {7, 90}), y = RandomView(random, {7, 90}, dtype);
    const Tensor same = y.Clone();
    Axpy(alpha, x, y);
    Axpy(-0.5, x, same);
    ExpectNear(y, Values(same), Vector(Values(same).size(), Epsilon(kFloat32)), "axpy");
  }
  const Tensor scalar = Full({}, 1);
  Axpy(FromValues({1, 1}, {2}), Full({}, 3), scalar);
  EXPECT_EQ(Values(scalar), Vector{7});
  Axpy(scalar, scalar, scalar);
  EXPECT_EQ(Values(scalar), Vector{56});
  const Tensor x = RandomTensor(random, {3, 4}), y = RandomTensor(random, {3, 4});
  const Tensor py = PaddedLayout::Of(y);
  Axpy(alpha, PaddedLayout::Of(x), py);
  Axpy(alpha, x, y);
  EXPECT_EQ(Values(py), Values(y));
}

TEST(Axpy, Errors) {
  const Tensor x(Shape{2}), ints = Full({2}, 1, nullptr, kInt32);
  EXPECT_ERROR(std::invalid_argument, "[Axpy]", Axpy(1, x, Tensor(Shape{3})));
  EXPECT_ERROR(TypeError, "does not fit", Axpy(1, x, ints));
  EXPECT_ERROR(TypeError, "does not fit", Axpy(0.5, ints, ints));
  EXPECT_ERROR(std::invalid_argument, "x is an empty", Axpy(1, Tensor(), x));
  EXPECT_ERROR(std::invalid_argument, "alpha must be a number or", Axpy(x, x, x));
  EXPECT_ERROR(std::invalid_argument, "alpha is an empty", Axpy(Tensor(), x, x));
  const Tensor one = Full({1}, 1);
  EXPECT_ERROR(std::invalid_argument, "[Axpy] x (1,)", Axpy(one, one, x));
  EXPECT_ERROR(TypeError, "int32", Axpy(one, ints, ints));
  EXPECT_ERROR(std::invalid_argument, "condition", Where(Tensor(), x, x));
  EXPECT_ERROR(std::invalid_argument, "[Where]", Where(x, x, Tensor(Shape{3})));
}

}  // namespace
}  // namespace singa::test
