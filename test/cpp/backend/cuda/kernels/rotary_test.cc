// Rotary position embedding on the emulator.

#include "model/operation/attention/rotary_spec.h"

#include "backend/cuda/kernels/kernels.h"

namespace singa::test {
namespace {

/// In memory (B, N, H, D).
Tensor Turned(const Tensor& t) {
  return t.Transpose({0, 2, 1, 3}).Contiguous().Transpose({0, 2, 1, 3});
}

TEST(CudaRotary, AnyGeometryBothWays) {
  Random random(12);
  for (const DType dtype : kFloats)
    for (int round = 0; round < 8; ++round) {
      RotarySpec spec;
      spec.batch = random.Int(1, 3), spec.heads = random.Int(1, 3), spec.length = random.Int(1, 5);
      spec.dim = random.Int(1, 40), spec.pairs = random.Int(0, spec.dim / 2);
      spec.dtype = dtype;
      spec.interleaved = round % 2 == 0;
      const auto table = [&] {
        const Shape shape = spec.table_shape();
        return round % 4 < 2
                   ? RandomTensor(random, shape, spec.table_type())
                   : RandomTensor(random, {shape[1], shape[2]}, spec.table_type()).Broadcast(shape);
      };
      const Tensor cos = table(), sin = table(), x = RandomTensor(random, spec.x_shape(), dtype);
      const Tensor y = Result(spec.x_shape(), dtype);
      const Tolerance tolerance{8 * Step(dtype), 8 * Step(dtype)};
      CompareWithReference(spec, {x, cos, sin}, {y}, Scalars(), tolerance, "forward");
      RotaryBackwardSpec backward;
      static_cast<RotarySpec&>(backward) = spec;
      CompareWithReference(backward, {Turned(x), cos, sin}, {Turned(y)}, Scalars(), tolerance,
                           "backward");
    }
}

}  // namespace
}  // namespace singa::test
