// Random kernels on the emulator generate the same numbers as the CPU.

#include "backend/cuda/kernels/kernels.h"
#include "model/operation/random/spec.h"

namespace singa::test {
namespace {

constexpr DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};

Scalars Draw(uint64_t offset, double a, double b = 0) {
  Scalars scalars;
  scalars.v[0] = a;
  scalars.v[1] = b;
  scalars.seed = 0x1234567890abcdefu;
  scalars.offset = offset;
  return scalars;
}

TEST(CudaRandom, IsTheSequenceOfTheCpu) {
  for (DType dtype : kFloats) {
    for (const int64_t size : {0, 1, 3, 1030}) {
      for (const uint64_t offset : {uint64_t{0}, uint64_t{1}, uint64_t{6}, uint64_t{1} << 34}) {
        const auto compare = [&](RandomKind kind, double a, double b) {
          CompareWithReference(RandomSpec{kind, dtype}, {}, {Result({size}, dtype)},
                               Draw(offset, a, b));
        };
        compare(RandomKind::kUniform, -1, 2.5);
        compare(RandomKind::kGaussian, 0.5, 2);
        compare(RandomKind::kBernoulli, 0.3, 0);
      }
    }
  }
}

TEST(CudaDropout, HasTheMaskOfTheCpu) {
  Random random(1);
  for (DType dtype : kFloats) {
    for (const int64_t size : {0, 1, 5, 1027}) {
      for (const uint64_t offset : {0, 3, 102}) {
        const Tensor x = RandomTensor(random, {size}, dtype);
        const auto results = CompareWithReference(DropoutSpec{dtype}, {x},
                                                  {Result({size}, dtype), Result({size}, kUInt8)},
                                                  Draw(offset, 0.4));
        CompareWithReference(DropoutBackwardSpec{dtype}, {x, results[1]}, {Result({size}, dtype)},
                             Draw(offset, 0.4));
      }
    }
  }
}

TEST(CudaDropout, GoesByLogicalOrderInImages) {
  Random random(2);
  for (DType dtype : kFloats) {
    for (const Shape& shape : {Shape{2, 3, 2, 3}, Shape{1, 5, 1, 2}, Shape{3, 33, 4, 4}}) {
      for (const uint64_t offset : {0, 3, 102}) {
        const Tensor x = RandomTensor(random, shape, dtype);
        const auto results =
            CompareWithReference(DropoutSpec{dtype, cudnn::ChannelsLastOf(shape, dtype)}, {x},
                                 {Result(shape, dtype), Result(shape, kUInt8)}, Draw(offset, 0.4));
        CompareWithReference(DropoutBackwardSpec{dtype, cudnn::ChannelsLastOf(shape, kUInt8)},
                             {x, results[1]}, {Result(shape, dtype)}, Draw(offset, 0.4));
      }
    }
  }
}

}  // namespace
}  // namespace singa::test
