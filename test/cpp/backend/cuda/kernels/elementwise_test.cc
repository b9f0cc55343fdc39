// Elementwise kernels on the emulator.

#include <algorithm>
#include <set>
#include <utility>

#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/kernels.h"
#include "model/formula/binary.h"
#include "model/formula/unary.h"
#include "model/operation/elementwise/spec.h"

namespace singa::test {
namespace {

constexpr DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};
constexpr DType kAll[] = {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32,
                          kInt64,   kInt8,     kUInt8,   kBool};

/// The CPU may contract a product and a sum, with one rounding.
Tolerance Contracted(DType dtype) {
  const double step = dtype == kFloat64 ? 0x1p-52 : IsFloat(dtype) ? 0x1p-23 : 0;
  return {4 * step, 16 * step};
}

Scalars Two(double a, double b) {
  Scalars scalars;
  scalars.v[0] = a;
  scalars.v[1] = b;
  return scalars;
}

TEST(CudaGeometry, PartsAreTheWhole) {
  // 5 x 7 x 3 elements, transposed, and broadcast over the middle axis.
  const Shape shape{5, 7, 3};
  const StridedSpace<2> space(shape, {Strides{1, 15, 5}, Strides{3, 0, 1}});
  for (const int64_t most : {1, 2, 10, 104, 105}) {
    std::multiset<std::pair<int64_t, int64_t>> found, expected;
    cuda::ForParts(space, most, [&](const StridedSpace<2>& part, const auto& start) {
      EXPECT_LE(part.size(), most);
      part.Walk(0, part.size(), [&](const auto& offsets, int64_t n) {
        for (int64_t i = 0; i < n; ++i)
          found.emplace(start[0] + offsets[0] + i * part.inner_stride(0),
                        start[1] + offsets[1] + i * part.inner_stride(1));
      });
    });
    for (int64_t a = 0; a < 5; ++a)
      for (int64_t b = 0; b < 7; ++b)
        for (int64_t c = 0; c < 3; ++c) expected.emplace(a + 15 * b + 5 * c, 3 * a + c);
    EXPECT_EQ(found, expected) << most;
  }
}

TEST(CudaUnary, EveryFunction) {
  Random random(1);
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
    const auto op = static_cast<UnaryOp>(i);
    for (DType dtype : kAll) {
      if (!IsFloat(dtype) && !TakesIntegers(op)) continue;
      // Longer than a block, and not a multiple of a vector.
      const Tensor x = random.Coin() ? RandomTensor(random, {2063}, dtype, -3, 3)
                                     : AnyTensor(random, random.Dims(3, 1, 9), dtype, -3, 3);
      CompareWithReference(UnarySpec{op, dtype}, {x}, {Result(x.shape(), dtype)},
                           Two(random.Int(0, 3), random.Int(0, 3)), Contracted(dtype));
    }
  }
}

TEST(CudaUnary, EveryDerivative) {
  Random random(2);
  for (int i = 0; i < static_cast<int>(UnaryOp::kCount); ++i) {
    const auto op = static_cast<UnaryOp>(i);
    if (!formula::HasUnaryGradient(op)) continue;
    for (DType dtype : kFloats) {
      const Shape shape = random.Coin() ? Shape{1031} : random.Dims(3, 1, 9);
      const Tensor dy = AnyTensor(random, shape, dtype), x = AnyTensor(random, shape, dtype, -2, 2);
      CompareWithReference(UnaryBackwardSpec{op, dtype}, {dy, x}, {Result(shape, dtype)},
                           Two(random.Int(0, 3), 0.5), Contracted(dtype));
    }
  }
}

TEST(CudaUnary, InPlaceAndIntoViews) {
  Random random(3);
  for (DType dtype : kAll) {
    const Tensor x = RandomTensor(random, {3, 700}, dtype, -3, 3);
    CompareWithReference(UnarySpec{UnaryOp::kNegative, dtype}, {x}, {x});
    const Tensor y = RandomView(random, {3, 5, 70}, dtype);
    CompareWithReference(UnarySpec{UnaryOp::kSquare, dtype},
                         {RandomView(random, {3, 5, 70}, dtype)}, {y});
  }
}

/// The functions that a type has.
std::vector<BinaryOp> FunctionsOf(DType dtype) {
  std::vector<BinaryOp> found;
  for (int i = 0; i < static_cast<int>(BinaryOp::kCount); ++i) {
    const auto op = static_cast<BinaryOp>(i);
    const formula::Operands operands = formula::FactsOf(op).operands;
    if (operands == formula::Operands::kNumbers ||
        (operands == formula::Operands::kFloats) == IsFloat(dtype))
      found.push_back(op);
  }
  return found;
}

/// The reference's vector loops compute these within 2 units of the last place.
Tolerance OfApproximation(BinaryOp op) {
  return {op == BinaryOp::kPow || op == BinaryOp::kLogAddExp ? 2 * Epsilon(kFloat32) : 0};
}

TEST(CudaBinary, EveryFunctionWithBroadcasting) {
  Random random(4);
  for (DType dtype : kAll) {
    for (BinaryOp op : FunctionsOf(dtype)) {
      const Shape shape = random.Dims(static_cast<int>(random.Int(0, 5)), 1, 6);
      const auto operand = [&](double low) {
        Shape own = shape;
        for (int axis = 0; axis < own.rank(); ++axis)
          if (random.Int(0, 3) == 0) own[axis] = 1;
        return AnyTensor(random, own, dtype, low, 4).Broadcast(shape);
      };
      // `reference` raises where integers have no quotient or power.
      const bool partial = op == BinaryOp::kDiv || op == BinaryOp::kMod || op == BinaryOp::kFmod ||
                           op == BinaryOp::kFloorDiv || op == BinaryOp::kPow;
      CompareWithReference(BinarySpec{op, dtype}, {operand(-4), operand(partial ? 1 : -4)},
                           {Result(shape, dtype)}, {}, OfApproximation(op));
    }
  }
}

TEST(CudaBinary, RunsOfVectors) {
  // A bias, a factor per row, a scalar. The last two shapes have runs, or offsets, that are not
  // multiples of vectors.
  Random random(14);
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{700, 16}, {1, 16}},     {{3, 5, 24}, {1, 5, 1}}, {{2, 7, 40}, {1, 1, 1}}, {{2048}, {1}},
      {{4, 3, 16}, {4, 1, 16}}, {{5, 12}, {1, 12}},      {{6, 10}, {6, 1}}};
  for (const auto& [shape, own] : shapes) {
    for (BinaryOp op : {BinaryOp::kAdd, BinaryOp::kSub, BinaryOp::kMul, BinaryOp::kDiv}) {
      for (DType dtype : kFloats) {
        const Tensor x = RandomTensor(random, shape, dtype, -4, 4);
        const Tensor b = RandomTensor(random, own, dtype, 1, 4).Broadcast(shape);
        const Tensor last = RandomTensor(random, {2 * shape.Count()}, dtype, -4, 4);
        CompareWithReference(BinarySpec{op, dtype}, {x, b}, {Result(shape, dtype)});
        CompareWithReference(BinarySpec{op, dtype}, {b, x}, {Result(shape, dtype)});
        CompareWithReference(BinarySpec{op, dtype}, {x, b}, {x});  // in place
        const Tensor odd = last.SliceAxis(0, 1, 1 + shape.Count()).Reshape(shape);
        CompareWithReference(BinarySpec{op, dtype}, {odd, b}, {Result(shape, dtype)});
        if (!formula::HasBinaryGradient(op)) continue;
        for (int argument : {0, 1})
          CompareWithReference(BinaryBackwardSpec{op, argument, dtype}, {x, x, b},
                               {Result(shape, dtype)}, {}, Contracted(dtype));
      }
    }
  }
}

TEST(CudaBinary, EveryDerivative) {
  Random random(5);
  for (int i = 0; i < static_cast<int>(BinaryOp::kCount); ++i) {
    const auto op = static_cast<BinaryOp>(i);
    if (!formula::HasBinaryGradient(op)) continue;
    for (int argument : {0, 1}) {
      for (DType dtype : kFloats) {
        const Shape shape = random.Coin() ? Shape{777} : random.Dims(3, 1, 9);
        const auto operand = [&] { return AnyTensor(random, shape, dtype, 0, 3); };
        CompareWithReference(BinaryBackwardSpec{op, argument, dtype},
                             {operand(), operand(), operand()}, {Result(shape, dtype)}, {},
                             Contracted(dtype));
      }
    }
  }
}

TEST(CudaBinary, MixedTypes) {
  Random random(6);
  for (DType a : kAll) {
    for (DType b : kAll) {
      const DType dtype = Promote(a, b);
      CompareWithReference(
          BinarySpec{BinaryOp::kAdd, dtype},
          {AnyTensor(random, {5, 41}, a, -9, 9), AnyTensor(random, {5, 41}, b, -9, 9)},
          {Result({5, 41}, dtype)});
    }
  }
}

TEST(CudaBinary, ValuesAtTheEdges) {
  const Vector edges = {0.0, -0.0, 1, -1, 2.5, -2.5, kInf, -kInf, kNan, 1e-40, 3e38};
  const auto n = static_cast<int64_t>(edges.size());
  const Tensor a = FromValues({n, 1}, edges).Broadcast({n, n});
  const Tensor b = FromValues({1, n}, edges).Broadcast({n, n});
  for (BinaryOp op : FunctionsOf(kFloat32))
    CompareWithReference(BinarySpec{op, kFloat32}, {a, b}, {Result({n, n})}, {},
                         OfApproximation(op));
  const Vector whole = {0, 1, -1, 7, -7, 2147483647, -2147483648.0};
  const auto m = static_cast<int64_t>(whole.size());
  for (BinaryOp op : FunctionsOf(kInt32)) {
    // The reference raises for the others.
    const auto refused = [&](double value) {
      if (op == BinaryOp::kPow) return value < 0;
      return value == 0 && (op == BinaryOp::kDiv || op == BinaryOp::kMod || op == BinaryOp::kFmod ||
                            op == BinaryOp::kFloorDiv);
    };
    Vector second = whole;
    std::erase_if(second, refused);
    const Shape shape = {m, static_cast<int64_t>(second.size())};
    const Tensor c = FromValues({m, 1}, whole, kInt32).Broadcast(shape);
    const Tensor d = FromValues({1, shape[1]}, second, kInt32).Broadcast(shape);
    CompareWithReference(BinarySpec{op, kInt32}, {c, d}, {Result(shape, kInt32)});
  }
}

TEST(CudaWhere, ConditionsOfAnyType) {
  Random random(7);
  for (DType condition : kAll) {
    for (DType dtype : {kFloat32, kBFloat16, kInt64, kBool}) {
      const Shape shape = random.Dims(3, 0, 7);
      CompareWithReference(
          WhereSpec{dtype},
          {AnyTensor(random, shape, condition, -1.5, 1.5), AnyTensor(random, shape, dtype, -3, 3),
           AnyTensor(random, shape, dtype, -3, 3)},
          {Result(shape, dtype)});
    }
  }
}

TEST(CudaAxpy, AddsInPlace) {
  Random random(8);
  for (DType dtype : kAll) {
    const Tensor x = AnyTensor(random, {37, 41}, dtype, -3, 3);
    const Tensor y = AnyTensor(random, {37, 41}, dtype, -3, 3);
    CompareWithReference(AxpySpec{dtype}, {x, y}, {y}, Two(3, 0), Contracted(dtype));
  }
}

}  // namespace
}  // namespace singa::test
