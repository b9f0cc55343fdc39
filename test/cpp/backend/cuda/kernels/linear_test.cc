// Matrix products and convolutions on the emulator.

#include "backend/cuda/kernels/common/gemm_grid.h"
#include "backend/cuda/kernels/kernels.h"
#include "model/operation/conv/conv_naive.h"
#include "model/operation/conv/spec.h"
#include "model/operation/linalg/spec.h"

namespace singa::test {
namespace {

constexpr DType kFloats[] = {kFloat32, kBFloat16, kFloat16, kFloat64};

/// The tolerance for a sum of `terms` products of numbers below one.
Tolerance SumOf(int64_t terms, DType dtype) {
  const double step = dtype == kFloat64 ? 0x1p-52 : 0x1p-23;
  return {4 * step, 2 * step * static_cast<double>(terms)};
}

TEST(CudaMatMul, AnyShapes) {
  Random random(1);
  for (int i = 0; i < 24; ++i) {
    MatMulSpec spec;
    spec.dtype = kFloats[i % 4];
    spec.a_batch = i % 3 == 0 ? Shape{2, 3} : Shape{};
    spec.b_batch = i % 3 == 0 ? Shape{2, 1} : Shape{};
    const bool large = i % 6 == 1;  // several tiles
    spec.m = random.Int(1, large ? 90 : 9);
    spec.n = random.Int(1, large ? 90 : 9);
    spec.k = random.Int(i == 5 ? 0 : 1, 40);
    spec.trans_a = random.Coin();
    spec.trans_b = random.Coin();
    spec.alpha = 0.5;
    spec.beta = -2;
    spec.relu = random.Coin();
    const auto matrix = [&](Shape shape, int64_t rows, int64_t columns, bool transposed) {
      shape.push_back(transposed ? columns : rows);
      shape.push_back(transposed ? rows : columns);
      return RandomTensor(random, shape, spec.dtype);
    };
    std::vector<Tensor> inputs = {matrix(spec.a_batch, spec.m, spec.k, spec.trans_a),
                                  matrix(spec.b_batch, spec.k, spec.n, spec.trans_b)};
    if (random.Coin()) {
      spec.c_rows = random.Coin() ? 1 : spec.m;
      spec.c_cols = random.Coin() ? 1 : spec.n;
      inputs.push_back(RandomTensor(random, {spec.c_rows, spec.c_cols}, spec.dtype));
    }
    Shape out = spec.a_batch;
    out.push_back(spec.m);
    out.push_back(spec.n);
    CompareWithReference(spec, inputs, {Result(out, spec.dtype)}, {},
                         SumOf(spec.k + 4, spec.dtype));
  }
}

TEST(CudaMatMul, AGridHoldsAnyNumberOfRows) {
  const dim3 grid = cuda::GemmGrid(70000, 10'000'000, 65);
  EXPECT_EQ(grid.x, 10'000'000u / 64 * 2);
  EXPECT_EQ(grid.y, 65535u);
  EXPECT_EQ(grid.z, 1u);
}

template <class Spec>
void CheckConv(Random& random, const Recorder& g, DType dtype, bool transposed) {
  Spec spec;
  spec.dtype = dtype;
  spec.geometry = g;
  const Shape x_shape = transposed ? g.output_shape() : g.input_shape();
  const Shape y_shape = transposed ? g.input_shape() : g.output_shape();
  const Tensor x = RandomTensor(random, x_shape, dtype), dy = RandomTensor(random, y_shape, dtype);
  const Tensor w = RandomTensor(random, g.weight_shape(), dtype);
  const Tensor b = g.bias ? RandomTensor(random, {y_shape[1]}, dtype) : Tensor();
  std::vector<Tensor> inputs = {x, w};
  if (g.bias) inputs.push_back(b);
  if (!transposed) {
    spec.has_add = random.Coin();
    spec.activation = AnyActivation(random);
    if (spec.has_add) inputs.push_back(RandomTensor(random, y_shape, dtype));
  }
  const auto compare = [&](ConvPass pass, const std::vector<Tensor>& in,
                           const std::vector<Tensor>& out) {
    spec.pass = pass;
    CompareWithReference(spec, in, out, {}, SumOf(spec.sum_length() + 2, dtype), g.ToString());
  };
  compare(ConvPass::kForward, inputs, {Result(y_shape, dtype)});
  spec.has_add = false;
  spec.activation = {};
  compare(ConvPass::kBackwardX, {dy, w}, {Result(x_shape, dtype)});
  std::vector<Tensor> gradients = {Result(g.weight_shape(), dtype)};
  if (g.bias) gradients.push_back(Result({y_shape[1]}, dtype));
  compare(ConvPass::kBackwardW, {dy, x}, gradients);
  if (g.bias) compare(ConvPass::kBackwardB, {dy}, {Result({y_shape[1]}, dtype)});
}

/// Both kinds of convolution, of a random geometry.
void CheckConvs(Random& random, int spatial, DType dtype) {
  const auto numbers = [&](int64_t low, int64_t high) {
    std::vector<int64_t> numbers;
    for (int i = 0; i < spatial; ++i) numbers.push_back(random.Int(low, high));
    return numbers;
  };
  const int64_t group = random.Int(1, 2);
  Shape input{random.Int(1, 2), group * random.Int(1, 3)};
  for (const int64_t size : numbers(5, spatial == 3 ? 6 : 9)) input.push_back(size);
  const Recorder g = ConvRecorder("test", input, numbers(1, 3), numbers(1, 2), numbers(0, 2),
                                  group * random.Int(1, 3), random.Coin(), numbers(1, 2), group);
  CheckConv<ConvSpec>(random, g, dtype, false);
  CheckConv<ConvTransposeSpec>(random, g, dtype, true);
}

TEST(CudaConv, RandomGeometries) {
  Random random(2);
  for (int i = 0; i < 24; ++i) CheckConvs(random, 2, kFloats[i % 4]);
}

TEST(CudaConv, SignalsAndVolumes) {
  Random random(5);
  for (int i = 0; i < 16; ++i) CheckConvs(random, i % 2 ? 1 : 3, kFloats[i / 2 % 4]);
}

}  // namespace
}  // namespace singa::test
