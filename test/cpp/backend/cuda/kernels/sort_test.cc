// TopK and CumSum on the emulator.

#include "model/operation/sort/spec.h"

#include "backend/cuda/kernels/kernels.h"

namespace singa::test {
namespace {

AxisLines Lines(int64_t outer, int64_t length, int64_t inner) {
  return AxisLines({outer, length, inner}, 1);
}

TEST(CudaSort, TopKOfAllTypesWithTies) {
  Random random(1);
  for (DType dtype :
       {kFloat32, kBFloat16, kFloat16, kFloat64, kInt32, kInt64, kInt8, kUInt8, kBool}) {
    for (const AxisLines& lines :
         {Lines(2, 5, 3), Lines(1, 300, 1), Lines(3, 1, 1), Lines(0, 4, 2)}) {
      for (const bool largest : {true, false}) {
        for (const int64_t k : {int64_t{0}, (lines.length + 1) / 2, lines.length}) {
          const Shape shape{lines.outer, lines.length, lines.inner}, y{lines.outer, k, lines.inner};
          const Tensor x =
              RandomTensor(random, shape, kFloat64, -9, 9).AsType(kInt32).AsType(dtype);
          CompareWithReference(TopKSpec{lines, dtype, k, largest}, {x},
                               {Result(y, dtype), Result(y, kInt64)});
        }
      }
    }
  }
}

TEST(CudaSort, ZerosAndNan) {
  for (DType dtype : kFloats) {
    const Tensor x =
        FromValues({1, 9, 1}, {0.0, -0.0, kNan, kInf, -kInf, 0.0, -kNan, -1, 1}, dtype);
    for (const bool largest : {true, false})
      CompareWithReference(TopKSpec{Lines(1, 9, 1), dtype, 9, largest}, {x},
                           {Result({1, 9, 1}, dtype), Result({1, 9, 1}, kInt64)});
  }
}

TEST(CudaSort, CumSum) {
  Random random(2);
  for (DType dtype : {kFloat32, kBFloat16, kFloat64, kInt64}) {
    // One line of several pieces, many lines, columns.
    for (const AxisLines& lines :
         {Lines(2, 700, 1), Lines(5, 3, 1), Lines(2, 9, 300), Lines(1, 0, 4)}) {
      for (const bool exclusive : {false, true}) {
        for (const bool reverse : {false, true}) {
          const Shape shape{lines.outer, lines.length, lines.inner};
          CompareWithReference(CumSumSpec{lines, dtype, exclusive, reverse},
                               {RandomTensor(random, shape, dtype, -9, 9)}, {Result(shape, dtype)},
                               {}, {dtype == kInt64 ? 0 : 1e-12, dtype == kInt64 ? 0 : 1e-11});
        }
      }
    }
  }
}

}  // namespace
}  // namespace singa::test
