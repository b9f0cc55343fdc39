// ReLU in front of maximum pooling, whose gradient is taken behind it.

#include "model/passes/recorded.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/pooling.h"

namespace singa::test {
namespace {

/// ReLU and maximum pooling, forward and backward, on images with ties.
std::vector<Tensor> Pooled(const PoolingHandle& handle, const Tensor& dy, const Tensor& x) {
  const Tensor y = Unary(UnaryOp::kRelu, x);
  const std::vector<Tensor> pooled = PoolingForward(handle, y, true);
  const Tensor dp = Unary(UnaryOp::kMulScalar, dy, 2);
  const Tensor dh = PoolingBackward(handle, dp, y, pooled[0], pooled[1]);
  return {UnaryBackward(UnaryOp::kRelu, dh, {}, y), pooled[0]};
}

TEST(PassReluThroughPooling, ReluChoosesBeforePoolingSpreadsTheGradient) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    Tensor x = RandomTensor(random, {2, random.Int(1, 20), random.Int(5, 9), random.Int(5, 9)},
                            kFloat32, -3, 3);
    x = Unary(UnaryOp::kRound, x);
    const int64_t kernel = random.Int(2, 3), stride = random.Int(1, 3);
    const PoolingHandle handle(x, {kernel, kernel}, {stride, stride}, {1, 1}, true);
    const Tensor dy = RandomTensor(random, PoolingForward(handle, x, false)[0].shape());
    const auto step = [&](const std::vector<Tensor>& in) { return Pooled(handle, dy, in[0]); };
    std::vector<Tensor> plain, swapped;
    Recorded(step, {x}, nullptr, &plain);
    const RecordingPtr recording = Recorded(step, {x}, PassOptions{.training = true}, &swapped);
    ExpectSame(swapped, plain, "seed " + std::to_string(seed));
    const std::vector<std::string> wanted{"Relu", "PoolingForward", "MulScalar", "ReluBackward",
                                          "PoolingBackward"};
    ASSERT_EQ(Operations(*recording), wanted) << seed;
    EXPECT_EQ(recording->step().nodes()[3].outputs[0].shape(), dy.shape());
    EXPECT_TRUE(recording->step().nodes()[4].inputs[1].empty());
  }
}

}  // namespace
}  // namespace singa::test
