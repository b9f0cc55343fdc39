// Reductions, softmax and losses on the emulator.

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/runtime/faults.h"
#include "model/operation/loss/spec.h"
#include "model/operation/reduce/spec.h"
#include "model/operation/softmax/spec.h"

namespace singa::test {
namespace {

constexpr DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};

double Step(DType dtype) { return dtype == kFloat64 ? 0x1p-52 : 0x1p-23; }

Shape ResultShape(const Shape& shape, uint32_t axes) {
  Shape result;
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (!(axes >> axis & 1)) result.push_back(shape[axis]);
  return result;
}

void CheckReduce(Random& random, const Shape& shape, uint32_t axes) {
  for (int i = 0; i < static_cast<int>(ReduceOp::kCount); ++i) {
    const auto op = static_cast<ReduceOp>(i);
    const bool picks = op == ReduceOp::kMax || op == ReduceOp::kMin;
    for (DType dtype : {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kInt64}) {
      if (!IsFloat(dtype) && (op == ReduceOp::kMean || op == ReduceOp::kL2)) continue;
      if (picks && shape.Count() == 0) continue;
      const Tensor x = AnyTensor(random, shape, dtype, -3, 3);
      const DType out = IsFloat(dtype) || picks ? dtype : kInt64;
      const Tensor y = Result(ResultShape(shape, axes), out);
      // Both sum in double, in different orders.
      const Tolerance tolerance{1e-11, 1e-9};
      const auto results =
          CompareWithReference(ReduceSpec{op, dtype, out, shape, axes}, {x}, {y}, {},
                               IsFloat(dtype) && !picks ? tolerance : Tolerance{},
                               shape.ToString() + " axes " + std::to_string(axes));
      if (!IsFloat(dtype)) continue;
      Shape kept = shape;
      for (int axis = 0; axis < shape.rank(); ++axis)
        if (axes >> axis & 1) kept[axis] = 1;
      const Tensor dy = RandomTensor(random, kept, dtype).Broadcast(shape);
      const Tensor wide = results[0].Reshape(kept).Broadcast(shape);
      CompareWithReference(ReduceBackwardSpec{op, dtype, shape, axes}, {dy, x, wide},
                           {Result(shape, dtype)}, {}, {4 * Step(dtype) + 1e-11, 1e-12},
                           shape.ToString() + " axes " + std::to_string(axes));
    }
  }
}

TEST(CudaReduce, AnyAxes) {
  Random random(1);
  CheckReduce(random, {}, 0);
  CheckReduce(random, {5000}, 1);     // two stages
  CheckReduce(random, {1500, 3}, 1);  // columns, in parts
  CheckReduce(random, {3, 1500}, 2);  // runs
  CheckReduce(random, {700, 12}, 1);  // columns, several per thread
  CheckReduce(random, {3, 40, 132}, 0b10);
  CheckReduce(random, {2, 3, 1, 5}, 0b1010);
  CheckReduce(random, {4, 0, 3}, 0b10);  // empty sums
  for (int i = 0; i < 6; ++i) {
    const Shape shape = random.Dims(static_cast<int>(random.Int(1, 4)), 1, 9);
    CheckReduce(random, shape, static_cast<uint32_t>(random.Int(0, (1 << shape.rank()) - 1)));
  }
}

TEST(CudaArgReduce, FirstOfEqualsAndNaN) {
  Random random(6);
  for (bool largest : {false, true}) {
    for (DType dtype : {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kInt64}) {
      for (const Shape& shape : {Shape{7, 40}, Shape{40, 7}, Shape{3, 1, 5}, Shape{100}}) {
        for (int axis = 0; axis < shape.rank(); ++axis) {
          const Tensor x = AnyTensor(random, shape, kInt32, -4, 4).AsType(dtype);
          CompareWithReference(ArgReduceSpec{largest, dtype, shape, axis}, {x},
                               {Result(ResultShape(shape, 1u << axis), kInt64)});
        }
      }
    }
    const Tensor x = FromValues({3, 4}, {1, 3, 3, -2, kNan, 5, kNan, 1, -kInf, -kInf, kInf, kInf});
    CompareWithReference(ArgReduceSpec{largest, kFloat32, {3, 4}, 1}, {x}, {Result({3}, kInt64)});
    CompareWithReference(ArgReduceSpec{largest, kFloat32, {3, 4}, 0}, {x}, {Result({4}, kInt64)});
  }
}

TEST(CudaCountTopK, RowsWhoseLabelIsAmongTheBest) {
  Random random(7);
  for (DType dtype : kFloats) {
    for (DType label : {kInt32, kInt64}) {
      for (const int64_t rows : {0, 1, 30}) {
        const Tensor scores = RandomTensor(random, {rows, 50}, kInt32, -9, 9).AsType(dtype);
        const Tensor labels = RandomTensor(random, {rows}, label, 0, 49);
        CompareWithReference(CountTopKSpec{dtype, label, rows, 50, 12}, {scores, labels},
                             {Result({1}, kInt64)});
      }
    }
  }
}

TEST(CudaReduce, TiesAndNaN) {
  const Tensor x = FromValues({3, 4}, {1, 3, 3, -2, kNan, 5, kNan, 1, -kInf, -kInf, -kInf, 0});
  for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin, ReduceOp::kSum, ReduceOp::kProd}) {
    const auto y =
        CompareWithReference(ReduceSpec{op, kFloat32, kFloat32, {3, 4}, 2}, {x}, {Result({3})});
    const Tensor dy = FromValues({3, 1}, {1, 2, 3}).Broadcast({3, 4});
    CompareWithReference(ReduceBackwardSpec{op, kFloat32, {3, 4}, 2},
                         {dy, x, y[0].Reshape({3, 1}).Broadcast({3, 4})}, {Result({3, 4})});
  }
  // Several zeros, one, none.
  const Tensor zeros = FromValues({3, 3}, {0, 2, 0, 4, 0, 6, 7, 8, 9});
  const auto y = CompareWithReference(ReduceSpec{ReduceOp::kProd, kFloat32, kFloat32, {3, 3}, 2},
                                      {zeros}, {Result({3})});
  CompareWithReference(ReduceBackwardSpec{ReduceOp::kProd, kFloat32, {3, 3}, 2},
                       {Result({3, 3}), zeros, y[0].Reshape({3, 1}).Broadcast({3, 3})},
                       {Result({3, 3})}, {}, {0x1p-22, 0});
}

TEST(CudaSoftmax, AnyAxis) {
  Random random(2);
  for (const Shape& shape : {Shape{3, 10, 1}, Shape{2, 1000, 1}, Shape{1, 33, 1}, Shape{2, 5, 7},
                             Shape{1, 40, 300}, Shape{4, 1, 1}, Shape{0, 3, 1}}) {
    for (DType dtype : kFloats) {
      for (bool log : {false, true}) {
        const Tensor x = RandomTensor(random, shape, dtype, -4, 4);
        const Tolerance tolerance{32 * Step(dtype), 16 * Step(dtype)};
        const auto y =
            CompareWithReference(SoftmaxSpec{shape[0], shape[1], shape[2], dtype, log}, {x},
                                 {Result(shape, dtype)}, {}, tolerance, shape.ToString());
        CompareWithReference(SoftmaxBackwardSpec{shape[0], shape[1], shape[2], dtype, log},
                             {RandomTensor(random, shape, dtype), y[0]}, {Result(shape, dtype)}, {},
                             {32 * Step(dtype), 64 * Step(dtype)}, shape.ToString());
      }
    }
  }
}

TEST(CudaSoftmax, NaNAndInfinity) {
  const Tensor x = FromValues({4, 3}, {kNan, 1, 2, kInf, 0, 0, -kInf, -kInf, -kInf, -kInf, 0, 1});
  for (bool log : {false, true})
    CompareWithReference(SoftmaxSpec{4, 3, 1, kFloat32, log}, {x}, {Result({4, 3})}, {},
                         {32 * Step(kFloat32), 0});
}

Scalars One(double value, double second = 0) {
  Scalars scalars;
  scalars.v[0] = value;
  scalars.v[1] = second;
  return scalars;
}

TEST(CudaLoss, SoftmaxCrossEntropy) {
  Random random(3);
  for (DType dtype : kFloats) {
    const DType compute = dtype == kFloat64 ? kFloat64 : kFloat32;
    for (const Shape& shape : {Shape{1, 1}, Shape{9, 10}, Shape{3, 100}}) {
      for (double smoothing : {0.0, 0.1}) {
        const Tensor x = RandomTensor(random, shape, dtype, -4, 4);
        Vector labels;
        for (int64_t i = 0; i < shape[0]; ++i)
          labels.push_back(static_cast<double>(random.Int(0, shape[1] - 1)));
        for (TargetKind kind : {TargetKind::kClasses, TargetKind::kProbabilities}) {
          for (DType label_type : {kInt32, kInt64, kFloat32}) {
            const Tensor t = kind == TargetKind::kClasses
                                 ? FromValues({shape[0]}, labels, label_type)
                                 : RandomTensor(random, shape, compute, 0, 1);
            const auto y =
                CompareWithReference(SoftmaxCrossEntropySpec{kind, dtype}, {x, t},
                                     {Result({}, compute), Result(shape, dtype)}, One(smoothing),
                                     {32 * Step(dtype), 32 * Step(dtype)}, shape.ToString());
            CompareWithReference(SoftmaxCrossEntropyBackwardSpec{kind, dtype},
                                 {FromValues({}, {1.5}, compute), y[1], t}, {Result(shape, dtype)},
                                 One(smoothing), {32 * Step(dtype), 32 * Step(dtype)});
          }
        }
      }
    }
  }
}

TEST(CudaLoss, AClassThatIsNoneIsAFault) {
  Random random(4);
  const Tensor x = RandomTensor(random, {3, 5});
  const Tensor t = FromValues({3}, {0, 7, 1});
  const SoftmaxCrossEntropySpec spec{TargetKind::kClasses, kFloat32};
  cuda::RaiseFaults();
  RunPlan(*PlanOnGpu(spec), {x, t}, {Result({}), Result({3, 5})}, One(0));
  EXPECT_ERROR(std::out_of_range, "index 7 at position 1 is outside [0, 5)", cuda::RaiseFaults());
  cuda::RaiseFaults();  // raises only once
}

TEST(CudaLoss, PairsOfElements) {
  Random random(5);
  for (int i = 0; i < static_cast<int>(PairLoss::kCount); ++i) {
    const auto kind = static_cast<PairLoss>(i);
    for (DType dtype : kFloats) {
      const Shape shape{7, 61};
      const Tensor x = RandomTensor(random, shape, dtype, 0, 1);
      const Tensor t = RandomTensor(random, shape, dtype, 0, 1);
      const DType compute = dtype == kFloat64 ? kFloat64 : kFloat32;
      CompareWithReference(PairLossSpec{kind, dtype}, {x, t}, {Result({}, compute)},
                           One(1.0 / 7, 0.2), {1e-12, 0}, PairLossName(kind));
      CompareWithReference(PairLossBackwardSpec{kind, dtype}, {FromValues({}, {2}, compute), x, t},
                           {Result(shape, dtype)}, One(1.0 / 7, 0.2), {}, PairLossName(kind));
    }
  }
}

}  // namespace
}  // namespace singa::test
