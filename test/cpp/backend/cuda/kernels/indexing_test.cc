// Gather, scatter, copies and transposes on the emulator.

#include <algorithm>
#include <array>

#include "backend/cuda/kernels/copy.h"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/runtime/faults.h"
#include "core/tensor/copy.h"
#include "model/operation/indexing/gather_spec.h"
#include "model/operation/indexing/scatter_spec.h"
#include "model/operation/indexing/spec.h"
#include "model/operation/layout/axis_map_spec.h"

namespace singa::test {
namespace {

constexpr DType kAll[] = {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32,
                          kInt64,   kInt8,     kUInt8,   kBool};

Tensor RandomIndices(Random& random, const Shape& shape, int64_t low, int64_t high, DType dtype) {
  Vector values;
  for (int64_t i = 0; i < shape.Count(); ++i)
    values.push_back(static_cast<double>(random.Int(low, high)));
  return FromValues(shape, values, dtype);
}

TEST(CudaGather, ForwardAndBackward) {
  Random random(1);
  for (DType dtype : {kFloat32, kBFloat16, kFloat64}) {
    for (DType index : {kInt32, kInt64, kFloat32}) {
      for (GatherKind kind : {GatherKind::kGather, GatherKind::kEmbedding}) {
        const Shape shape = random.Dims(3, 1, 6);
        const int axis = static_cast<int>(random.Int(0, 2));
        for (const int64_t count : {0, 1, 700}) {  // 700: more than one tile of the sort
          const int64_t low = kind == GatherKind::kGather ? -shape[axis] : 0;
          const Tensor indices = RandomIndices(random, {count}, low, shape[axis] - 1, index);
          Shape out = shape;
          out[axis] = count;
          CompareWithReference(GatherSpec{kind, dtype, index, shape, axis, count},
                               {AnyTensor(random, shape, dtype), indices}, {Result(out, dtype)});
          CompareWithReference(GatherBackwardSpec{kind, dtype, index, shape, axis, count},
                               {RandomTensor(random, out, dtype), indices}, {Result(shape, dtype)});
        }
      }
    }
  }
}

TEST(CudaGather, ManyRowsInTheOrderOfThePicks) {
  // Indices of several digits, several blocks of the sort, rows in vectors. Half of the picks are
  // of one row, like padding.
  Random random(11);
  for (DType dtype : {kFloat32, kBFloat16}) {
    for (const int64_t length : {1, 256, 257, 70000}) {
      const int64_t count = 5000, width = length > 1000 ? 1 : 8;
      Vector values;
      for (int64_t i = 0; i < count; ++i)
        values.push_back(i % 2 ? 0 : static_cast<double>(random.Int(0, length - 1)));
      const Tensor indices = FromValues({count}, values, kInt32);
      const Shape shape{length, width}, out{count, width};
      const GatherKind kind = GatherKind::kEmbedding;
      CompareWithReference(GatherSpec{kind, dtype, kInt32, shape, 0, count},
                           {RandomTensor(random, shape, dtype), indices}, {Result(out, dtype)});
      CompareWithReference(GatherBackwardSpec{kind, dtype, kInt32, shape, 0, count},
                           {RandomTensor(random, out, dtype), indices}, {Result(shape, dtype)});
    }
  }
}

TEST(CudaGather, IndicesOutsideAreFaults) {
  Random random(2);
  cuda::RaiseFaults();
  const auto run = [&](const Vector& indices) {
    const auto count = static_cast<int64_t>(indices.size());
    const GatherSpec spec{GatherKind::kEmbedding, kFloat32, kFloat32, {5, 2}, 0, count};
    RunPlan(*PlanOnGpu(spec), {RandomTensor(random, {5, 2}), FromValues({count}, indices)},
            {Result({count, 2})}, {});
  };
  run({0, 4});
  cuda::RaiseFaults();
  run({0, 5});
  EXPECT_ERROR(std::out_of_range, "index 5 at position 1", cuda::RaiseFaults());
  run({-1});
  EXPECT_ERROR(std::out_of_range, "index -1 at position 0", cuda::RaiseFaults());
  run({0, 1, 1.5});
  EXPECT_ERROR(std::invalid_argument, "1.5 at position 2", cuda::RaiseFaults());
}

TEST(CudaIndexing, IndicesForNothingAreFaults) {
  cuda::RaiseFaults();
  const auto expect_fault = [](const auto& spec, const std::vector<Tensor>& inputs,
                               const std::vector<Tensor>& outputs) {
    RunPlan(*PlanOnGpu(spec), inputs, outputs, {});
    EXPECT_ERROR(std::out_of_range, "is outside", cuda::RaiseFaults());
  };
  const Tensor indices = FromValues({2}, {0, 3}, kInt64);
  const Tensor column = FromValues({2, 1}, {0, 3}, kInt64);
  for (const Shape& shape : {Shape{3, 0}, Shape{0, 2}})
    expect_fault(GatherSpec{GatherKind::kGather, kFloat32, kInt64, shape, 0, 2},
                 {Result(shape), indices}, {Result({2, shape[1]})});
  for (const IndexedOp indexed : {IndexedOp::kScatterElements, IndexedOp::kGatherND})
    expect_fault(PositionsSpec{indexed, kInt64, {0, 1}, {2, 1}, 0}, {column},
                 {Result({2}, kInt64)});
  const ScatterFields fields{ScatterReduction::kNone, kFloat32, 0, 1, 2};
  expect_fault(ScatterSpec{fields}, {Result({0, 1}), indices, Result({2, 1})}, {Result({0, 1})});
  expect_fault(ScatterBackwardSpec{fields}, {Result({0, 1}), indices, {}, {}, {}},
               {Result({0, 1}), Result({2, 1})});
}

TEST(CudaScatter, PositionsOfElementsAndSlices) {
  Random random(3);
  for (DType index : {kInt32, kInt64, kFloat32}) {
    for (int i = 0; i < 6; ++i) {
      const Shape shape = random.Dims(static_cast<int>(random.Int(1, 4)), 2, 5);
      const int axis = static_cast<int>(random.Int(0, shape.rank() - 1));
      Shape index_shape = shape;
      for (int a = 0; a < shape.rank(); ++a)
        index_shape[a] = a == axis ? random.Int(0, 20) : random.Int(1, shape[a]);
      CompareWithReference(
          PositionsSpec{IndexedOp::kGatherElements, index, shape, index_shape, axis},
          {RandomIndices(random, index_shape, -shape[axis], shape[axis] - 1, index)},
          {Result({index_shape.Count()}, kInt64)});
      // `axis` batch axes, then names of one to all of the others.
      Shape names = random.Dims(axis + 2, 0, 4);
      for (int a = 0; a < axis; ++a) names[a] = shape[a];
      names[axis + 1] = random.Int(1, shape.rank() - axis);
      CompareWithReference(PositionsSpec{IndexedOp::kGatherND, index, shape, names, axis},
                           {RandomIndices(random, names, -2, 1, index)},
                           {Result({names.Count(0, axis + 1)}, kInt64)});
    }
  }
}

TEST(CudaScatter, EveryReductionAndItsGradient) {
  Random random(13);
  for (int how = 0; how < kEnumSize<ScatterReduction>; ++how) {
    const auto reduction = static_cast<ScatterReduction>(how);
    for (DType dtype : kAll) {
      if (dtype == kBool && reduction != ScatterReduction::kNone) continue;
      // Several updates of most rows; rows of one element and of several; more than one tile.
      for (const auto& [rows, width, count] :
           {std::array<int64_t, 3>{7, 5, 11}, {300, 1, 700}, {4, 3, 0}}) {
        const ScatterFields fields{reduction, dtype, rows, width, count};
        const auto small = [&](const Shape& shape) {
          return AnyTensor(random, shape, kFloat64, -2, 3)
              .AsType(kInt32)
              .AsType(dtype)
              .Contiguous();
        };
        const Tensor positions = RandomIndices(random, {count}, 0, rows - 1, kInt64);
        const Tensor x = small({rows, width}), updates = small({count, width});
        const Tensor y = CompareWithReference(ScatterSpec{fields}, {x, positions, updates},
                                              {Result({rows, width}, dtype)})[0];
        if (!IsFloat(dtype)) continue;
        const ScatterBackwardSpec backward{fields};
        const Tensor none;
        CompareWithReference(
            backward,
            {RandomTensor(random, {rows, width}, dtype), positions, backward.needs_x() ? x : none,
             backward.needs_x() ? updates : none, backward.needs_y() ? y : none},
            {Result({rows, width}, dtype), Result({count, width}, dtype)});
      }
    }
  }
}

TEST(CudaIndexing, ConcatSlicesOneHot) {
  Random random(4);
  Scalars scalars;
  scalars.v[0] = 2;
  scalars.v[1] = 5;
  for (DType dtype : kAll) {
    CompareWithReference(ConcatSpec{dtype, 1},
                         {AnyTensor(random, {3, 4, 2}, dtype), AnyTensor(random, {3, 0, 2}, dtype),
                          AnyTensor(random, {3, 5, 2}, dtype)},
                         {Result({3, 9, 2}, dtype)});
    CompareWithReference(SliceBackwardSpec{dtype, 11, {-12, 2}}, {AnyTensor(random, {1, 5}, dtype)},
                         {Result({3, 12}, dtype)});
    for (DType index : {kInt32, kFloat32})
      CompareWithReference(OneHotSpec{dtype, index, 3, 6, 4},
                           {RandomIndices(random, {3, 4}, -8, 8, index)},
                           {Result({3, 6, 4}, dtype)}, scalars);
  }
}

TEST(CudaIndexing, PiecesOfImages) {
  Random random(9);
  for (DType dtype : {kFloat32, kBFloat16, kUInt8}) {
    for (int axis = 0; axis < 4; ++axis) {
      Shape y_shape = {2, 8, 3, 4};
      ConcatSpec concat{dtype, axis};
      std::vector<Tensor> parts, packed;
      y_shape[axis] = 0;
      for (const int64_t length : {4, 1, 8}) {
        Shape shape = y_shape;
        shape[axis] = length;
        y_shape[axis] += length;
        parts.push_back(RandomTensor(random, shape, dtype, 0, 99));
        packed.push_back(Packed(parts.back(), cudnn::ChannelsLastOf(shape, dtype)));
      }
      concat.x_layout = cudnn::ChannelsLastOf(parts[0].shape(), dtype);
      concat.y_shape = y_shape;
      const Tensor y = RunPlan(*PlanOnGpu(concat), packed, {Result(y_shape, dtype)}, {})[0];
      int64_t start = 0;
      for (const Tensor& part : parts) {
        const int64_t length = part.shape()[axis];
        EXPECT_EQ(BytesOf(y.SliceAxis(axis, start, start + length)), BytesOf(part));
        for (const LayoutPtr& layout : ImageLayouts(y_shape, dtype))
          CompareWithReference(SplitSpec{dtype, y_shape, axis, start, length, layout}, {y},
                               {Result(part.shape(), dtype)});
        start += length;
      }
    }
  }
}

TEST(CudaIndexing, NonZero) {
  Random random(5);
  for (const Shape& shape : {Shape{7, 5, 3}, Shape{70000}, Shape{0, 3}}) {
    for (DType dtype : {kFloat32, kBool, kBFloat16}) {
      Vector values;
      for (int64_t i = 0; i < shape.Count(); ++i) values.push_back(random.Int(0, 2) == 0);
      const Tensor x = FromValues(shape, values, dtype);
      const int64_t pieces = (shape.Count() + kNonZeroPiece - 1) / kNonZeroPiece;
      const auto counts =
          CompareWithReference(CountNonZeroSpec{dtype}, {x}, {Result({pieces}, kInt64)});
      Vector before;
      double total = 0;
      for (double count : Values(counts[0])) {
        before.push_back(total);
        total += count;
      }
      CompareWithReference(NonZeroSpec{dtype}, {x, FromValues({pieces}, before, kInt64)},
                           {Result({shape.rank(), static_cast<int64_t>(total)}, kInt64)});
    }
  }
}

TEST(CudaAxisMap, EveryKindBothWays) {
  Random random(8);
  for (AxisMapKind kind :
       {AxisMapKind::kTile, AxisMapKind::kRepeat, AxisMapKind::kUpsample, AxisMapKind::kRoll,
        AxisMapKind::kShuffle, AxisMapKind::kPadConstant, AxisMapKind::kPadReflect,
        AxisMapKind::kPadEdge, AxisMapKind::kPadWrap}) {
    for (int i = 0; i < 12; ++i) {
      const DType dtype = kAll[i % 9];
      const Shape shape = random.Dims(static_cast<int>(random.Int(1, 4)), 1, 5);
      AxisMapSpec spec;
      spec.kind = kind;
      spec.dtype = dtype;
      spec.x_shape = shape;
      for (int axis = 0; axis < shape.rank(); ++axis) {
        // Includes repeated reflection, and cropping down to nothing.
        const int64_t length = shape[axis];
        int64_t first = IsPad(kind)                  ? random.Int(-length, 9)
                        : kind == AxisMapKind::kRoll ? random.Int(0, length - 1)
                                                     : random.Int(1, 3);
        if (kind == AxisMapKind::kShuffle && length % first != 0) first = length;
        spec.first.push_back(first);
        spec.last.push_back(IsPad(kind) ? random.Int(-std::min(length, length + first), 9) : 0);
      }
      Scalars scalars;
      scalars.v[0] = 4.5;
      for (const LayoutPtr& layout : ImageLayouts(shape, dtype)) {
        spec.layout = layout;
        const Tensor x = layout ? RandomTensor(random, shape, dtype, -9, 9)
                                : AnyTensor(random, shape, dtype, -9, 9);
        CompareWithReference(spec, {x}, {Result(spec.OutShape(), dtype)}, scalars);
      }
      if (!IsFloat(dtype)) continue;
      AxisMapBackwardSpec backward;
      static_cast<AxisMapFields&>(backward) = spec;
      for (const LayoutPtr& layout : ImageLayouts(spec.OutShape(), dtype)) {
        backward.layout = layout;
        CompareWithReference(backward, {RandomTensor(random, spec.OutShape(), dtype)},
                             {Result(shape, dtype)}, {}, {1e-12, 1e-12});
      }
    }
  }
}

TEST(CudaCopy, AnyTypesAndStrides) {
  Random random(6);
  for (DType from : kAll) {
    for (DType to : kAll) {
      const Shape shape = random.Coin() ? Shape{64} : random.Dims(3, 0, 6);
      const Tensor src = AnyTensor(random, shape, from, -3, 3);
      const Tensor dst = RandomView(random, shape, to), want = dst.Clone();
      cuda::QueueCopy(src, dst, nullptr);
      StridedCopy(src, want);
      EXPECT_EQ(BytesOf(dst), BytesOf(want));
      cuda::QueueFill(dst, -1.75, nullptr);
      StridedFill(want, -1.75);
      EXPECT_EQ(BytesOf(dst), BytesOf(want));
    }
  }
}

TEST(CudaCopy, CastsWithoutGaps) {
  Random random(12);
  for (DType from : {kFloat32, kBFloat16, kFloat16}) {
    for (DType to : {kFloat32, kBFloat16, kFloat16}) {
      for (const int64_t size : {7, 8, 2077}) {
        for (const int64_t start : {0, 1}) {
          const Tensor src =
              RandomTensor(random, {size + 1}, from).SliceAxis(0, start, start + size);
          const Tensor dst = Result({size}, to), want = dst.Clone();
          cuda::QueueCopy(src, dst, nullptr);
          StridedCopy(src, want);
          EXPECT_EQ(BytesOf(dst), BytesOf(want));
        }
      }
    }
  }
}

TEST(CudaCopy, RowsOfAnyWidth) {
  Random random(10);
  for (DType dtype : {kFloat32, kBFloat16, kInt8, kFloat64}) {
    for (const int64_t pitch : {48, 47, 44}) {
      for (const int64_t length : {1, 2, 8, 16, 20}) {
        for (const int64_t start : {0, 1, 2, 4, 16}) {
          const Tensor x = RandomTensor(random, {3, 5, 48}, dtype, -9, 9);
          const Tensor y = Result({3, 5, pitch}, dtype), want = y.Clone();
          const auto part = [&](const Tensor& t) { return t.SliceAxis(2, start, start + length); };
          cuda::QueueCopy(part(x), part(y), nullptr);
          StridedCopy(part(x), part(want));
          EXPECT_EQ(BytesOf(y), BytesOf(want)) << pitch << length << start;
        }
      }
    }
  }
}

TEST(CudaCopy, TransposesOfAnySize) {
  Random random(7);
  for (DType dtype : {kFloat32, kBFloat16, kFloat64, kInt8}) {
    for (const Shape& shape : {Shape{2, 3, 5}, Shape{1, 32, 64}, Shape{3, 33, 31}, Shape{2, 8, 40},
                               Shape{0, 4, 4}, Shape{1, 1, 100}}) {
      const Tensor x = RandomTensor(random, shape, dtype, -9, 9);
      for (const auto order : {cuda::emulated::Order::kForward, cuda::emulated::Order::kShuffled}) {
        cuda::emulated::SetOrder(order);
        const Tensor y = Result({shape[0], shape[2], shape[1]}, dtype);
        cuda::QueueTranspose(x.raw_data(), y.raw_data(), shape[0], shape[1], shape[2],
                             SizeOf(dtype), nullptr);
        EXPECT_EQ(BytesOf(y), BytesOf(x.Transpose({0, 2, 1})));
        const Tensor copied = Result(y.shape(), dtype);
        cuda::QueueCopy(x.Transpose({0, 2, 1}), copied, nullptr);
        cuda::emulated::SetOrder(cuda::emulated::Order::kForward);
        EXPECT_EQ(BytesOf(copied), BytesOf(y));
      }
    }
  }
}

}  // namespace
}  // namespace singa::test
