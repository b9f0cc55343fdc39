#include <algorithm>

#include "model/passes/recorded.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/linalg.h"

namespace singa::test {
namespace {

using Names = std::vector<std::string>;

constexpr PassOptions kFused{.training = true, .fuse = true};

bool Contains(const Recording& recording, const std::string& name) {
  const Names names = Operations(recording);
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A convolution and a ReLU, forward and backward.
struct ConvNet {
  explicit ConvNet(uint64_t seed) : random(seed) {
    const int64_t kernel = random.Coin() ? 3 : 1;
    x = RandomTensor(random, {random.Int(1, 3), random.Int(1, 20), 9, 8});
    handle = std::make_shared<ConvHandle>(x, std::vector<int64_t>{kernel, kernel},
                                          std::vector<int64_t>{1, 1}, std::vector<int64_t>{0, 0},
                                          x.shape()[1], random.Int(1, 40), random.Coin());
    const Recorder& geometry = handle->recorder;
    W = RandomTensor(random, geometry.weight_shape());
    if (geometry.bias) b = RandomTensor(random, {geometry.out_channels});
    dy = RandomTensor(random, geometry.output_shape());
  }

  std::vector<Tensor> operator()(const std::vector<Tensor>& in) const {
    const Tensor y = Unary(UnaryOp::kRelu, ConvForward(in[0], W, b, *handle));
    const Tensor dh = UnaryBackward(UnaryOp::kRelu, dy, {}, y);
    std::vector<Tensor> results = ConvBackward(dh, in[0], W, *handle, true, true, !b.empty());
    results.push_back(y);
    return results;
  }

  Random random;
  Tensor x, W, b, dy;
  std::shared_ptr<ConvHandle> handle;
};

/// Executes, records without and with fusion, and compares. Returns the fused recording.
RecordingPtr Check(const Step& step, const Tensor& x, const std::string& what = "") {
  const std::vector<Tensor> executed = step({x});
  std::vector<Tensor> plain, fused;
  Recorded(step, {x}, nullptr, &plain);
  const RecordingPtr recording = Recorded(step, {x}, kFused, &fused);
  EXPECT_EQ(plain.size(), fused.size());
  for (size_t i = 0; i < fused.size(); ++i) {
    if (fused[i].empty()) continue;
    EXPECT_EQ(Values(fused[i]), Values(executed[i])) << what << ", result " << i;
    EXPECT_TRUE(SameLayout(fused[i].layout(), plain[i].layout())) << what << ", result " << i;
  }
  return recording;
}

TEST(Fusion, ReluIsPartOfTheConvolutionBeforeIt) {
  for (uint64_t seed = 0; seed < 15; ++seed) {
    const ConvNet net(seed);
    const RecordingPtr recording = Check(net, net.x, "seed " + std::to_string(seed));
    EXPECT_TRUE(Contains(*recording, "ConvForward+Relu")) << seed;
    EXPECT_FALSE(Contains(*recording, "Relu")) << seed;
  }
}

TEST(Fusion, AResultThatOthersReadIsKept) {
  const ConvNet net(1);
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor y = ConvForward(in[0], net.W, net.b, *net.handle);
    return {Binary(BinaryOp::kMul, Unary(UnaryOp::kRelu, y), y)};
  };
  const RecordingPtr recording = Check(step, net.x);
  EXPECT_TRUE(Contains(*recording, "ConvForward"));
  EXPECT_TRUE(Contains(*recording, "Relu+Mul"));
}

TEST(Fusion, ReluIsPartOfALinearLayer) {
  Random random(2);
  const Tensor x = RandomTensor(random, {5, 7}), W = RandomTensor(random, {7, 9});
  const Tensor b = RandomTensor(random, {9});
  const auto step = [&](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    return {Unary(UnaryOp::kRelu, LinearForward(in[0], W, b))};
  };
  EXPECT_EQ(Operations(*Check(step, x)), Names{"LinearForward+Relu"});
}

TEST(Fusion, GradientsThatTheHostSeesAreWritten) {
  Random random(3);
  const Tensor x = RandomTensor(random, {64});
  Recording recording(DefaultDevice(), nullptr);
  UsePasses(recording, kFused);
  recording.Start({x});
  Vector seen;
  Tensor result;
  {
    const Tensor lent = Unary(UnaryOp::kMulScalar, Unary(UnaryOp::kNegative, x), 3);
    result = Unary(UnaryOp::kExp, lent);
    recording.Pause({lent});
    seen = Values(lent);
  }
  recording.Resume();
  recording.Finish({result});
  EXPECT_EQ(recording.obstacle(), "");
  EXPECT_EQ(seen, Values(Unary(UnaryOp::kMulScalar, Unary(UnaryOp::kNegative, x), 3)));
  EXPECT_EQ(Operations(recording), Names{"Negative+MulScalar+Exp"});
}

}  // namespace
}  // namespace singa::test
