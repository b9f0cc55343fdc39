// Batch norms whose results depthwise convolutions compute.

#include <algorithm>

#include "core/device/instruction_set.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/passes/recorded.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/layout.h"
#include "wrong_kernel.h"

namespace singa::test {
namespace {

/// A batch norm, the depthwise convolution behind it, and the gradients of both.
struct Block {
  Block(Random& random, const Shape& shape, const Activation& activation, DType dtype = kFloat32,
        bool affine = true, int64_t kernel = 3, int64_t stride = 1)
      : x(RandomTensor(random, shape, dtype)),
        activation(activation),
        norm(0.1, x),
        conv(ConvRecorder("Conv", shape, {kernel, kernel}, {stride, stride},
                          std::vector<int64_t>(4, kernel / 2), shape[1], affine, {1, 1},
                          shape[1])) {
    const Shape channels{shape[1]};
    if (affine) {
      scale = RandomTensor(random, channels, kFloat32, 0.5, 2);
      bias = RandomTensor(random, channels);
      b = RandomTensor(random, channels, dtype);
    }
    running_mean = RandomTensor(random, channels);
    running_var = RandomTensor(random, channels, kFloat32, 0.5, 2);
    w = RandomTensor(random, conv.recorder.weight_shape(), dtype);
    dy = RandomTensor(random, conv.recorder.output_shape(), dtype);
  }

  /// `between` is called between forward and backward, with batch norm's result.
  std::vector<Tensor> Run(const std::vector<Tensor>& in,
                          const std::function<void(const Tensor&)>& between = {}) const {
    const Tensor mean = running_mean.Clone(), var = running_var.Clone();
    const auto normed =
        BatchNormForwardTraining(norm, in[0], scale, bias, mean, var, {}, activation);
    const Tensor y = ConvForward(normed[0], w, b, conv);
    if (between) between(normed[0]);
    const auto of_conv = ConvBackward(dy, normed[0], w, conv, true, true, !b.empty());
    const bool relu = activation.kind == ActivationKind::kRelu;
    std::vector<Tensor> results =
        BatchNormBackward(norm, of_conv[0], in[0], scale, normed[1], normed[2], true, true,
                          activation, bias, relu ? normed[0] : Tensor());
    for (const Tensor& t : {y, of_conv[1], of_conv[2], normed[1], normed[2], mean, var})
      if (!t.empty()) results.push_back(t);
    return results;
  }

  Tensor x, scale, bias, running_mean, running_var, w, b, dy;
  Activation activation;
  BatchNormHandle norm;
  ConvHandle conv;
};

bool IsMerged(const Recording& recording) {
  const std::vector<std::string> names = Operations(recording);
  const auto count = [&](const char* name) { return std::count(names.begin(), names.end(), name); };
  const bool merged = count("NormConvForward") == 1;
  EXPECT_EQ(count("ConvForward"), merged ? 0 : 1);
  EXPECT_EQ(count("NormConvBackwardW"), merged ? 1 : 0);
  EXPECT_EQ(count("ConvBackwardW"), merged ? 0 : 1);
  EXPECT_EQ(count("BatchNormStatistics"), merged ? 1 : 0);
  EXPECT_EQ(count("BatchNormForwardTraining"), merged ? 0 : 1);
  return merged;
}

RecordingPtr Check(const Step& step, const Tensor& x, const std::string& what) {
  std::vector<Tensor> plain, merged;
  Recorded(step, {x}, nullptr, &plain);
  const RecordingPtr recording = Recorded(step, {x}, NormalizeInConvolutions, &merged);
  ExpectSame(merged, plain, what);
  return recording;
}

bool HasDepthwiseKernels() { return AllowedInstructionSet() >= InstructionSet::kAvx2; }

TEST(NormalizeInConvolutions, TheBitsAreThoseOfTheResult) {
  if (!HasDepthwiseKernels()) GTEST_SKIP() << "this CPU has no depthwise kernels";
  Random random(1);
  const Activation activations[] = {false,
                                    true,
                                    {ActivationKind::kClip, 0, 6},
                                    ActivationKind::kHardSwish,
                                    ActivationKind::kSilu};
  for (const Activation& activation : activations)
    // Whole blocks, blocks that are not full, and channels-last images.
    for (const Shape& shape : {Shape{2, 32, 9, 8}, Shape{3, 30, 14, 5}, Shape{2, 20, 12, 11}})
      for (const bool affine : {true, false}) {
        const int64_t kernel = random.Coin() ? 3 : 5, stride = random.Int(1, 2);
        Block block(random, shape, activation, kFloat32, affine, kernel, stride);
        for (const bool blocked : {true, false}) {
          if (blocked) block.x = ToBlocked(block.x);
          const auto step = [&](const std::vector<Tensor>& in) { return block.Run(in); };
          const std::string what = shape.ToString() + LayoutName(block.x.layout()) +
                                   std::to_string(static_cast<int>(activation.kind));
          const RecordingPtr recording = Check(step, block.x, what);
          if (block.x.layout()) {
            EXPECT_EQ(IsMerged(*recording), activation.kind != ActivationKind::kSilu) << what;
          }
          block.x = block.x.Plain();
        }
      }
}

TEST(NormalizeInConvolutions, ResultsThatAreUsedOtherwiseStay) {
  if (!HasDepthwiseKernels()) GTEST_SKIP() << "this CPU has no depthwise kernels";
  Random random(2);
  Block block(random, {2, 32, 6, 7}, true);
  block.x = ToBlocked(block.x);
  Tensor kept;
  const std::pair<const char*, std::function<void(const Tensor&)>> cases[] = {
      {"read besides", [&](const Tensor& y) { kept = Unary(UnaryOp::kMulScalar, y, 2); }},
      {"held", [&](const Tensor& y) { kept = y; }},
      {"overwritten", [&](const Tensor& y) { UnaryInto(UnaryOp::kMulScalar, y, y, 2); }},
      {"another scale in backward",
       [&](const Tensor&) { UnaryInto(UnaryOp::kMulScalar, block.scale, block.scale, 2); }},
      {"another x in backward",
       [&](const Tensor&) { UnaryInto(UnaryOp::kMulScalar, block.x, block.x, 2); }},
  };
  const Tensor scale = block.scale, x = block.x;
  for (const auto& [what, between] : cases) {
    const auto step = [&, &between = between](const std::vector<Tensor>&) {
      auto results = block.Run({block.x}, between);
      if (!kept.empty()) results.push_back(kept);
      return results;
    };
    std::vector<Tensor> plain, merged;
    block.scale = scale.Clone(), block.x = x.Clone();
    Recorded(step, {block.x}, nullptr, &plain);
    block.scale = scale.Clone(), block.x = x.Clone();
    EXPECT_FALSE(IsMerged(*Recorded(step, {block.x}, NormalizeInConvolutions, &merged))) << what;
    ExpectSame(merged, plain, what);
    kept = Tensor();
  }
}

TEST(NormalizeInConvolutions, BFloat16Stays) {
  Random random(3);
  const Block block(random, {2, 32, 6, 7}, true, kBFloat16);
  const auto step = [&](const std::vector<Tensor>& in) { return block.Run(in); };
  EXPECT_FALSE(IsMerged(*Check(step, block.x, "bfloat16")));
}

/// With right and with wrong kernels.
TEST(NormalizeInConvolutions, OpcheckComparesThem) {
  if (!HasDepthwiseKernels()) GTEST_SKIP() << "this CPU has no depthwise kernels";
  Random random(4);
  Block block(random, {2, 32, 9, 8}, ActivationKind::kHardSwish);
  block.x = ToBlocked(block.x);
  const auto step = [&](const std::vector<Tensor>& in) { return block.Run(in); };
  /// Comparisons with `reference` and how many of them failed, of both passes.
  const auto compared = [&] {
    ResetOpcheckStats();
    std::vector<Tensor> results;
    Recorded(step, {block.x}, NormalizeInConvolutions, &results);
    std::vector<std::pair<uint64_t, uint64_t>> counts;
    for (const OpcheckOpStats& stats : GetOpcheckStats())
      if (stats.op.starts_with("NormConv")) counts.emplace_back(stats.checked, stats.failed);
    return counts;
  };
  using Counts = std::vector<std::pair<uint64_t, uint64_t>>;
  const OpcheckScope opcheck(
      {.every = 1, .ops = {}, .raise = false, .replay_directory = testing::TempDir()});
  EXPECT_EQ(compared(), (Counts{{1, 0}, {1, 0}}));
  {
    const WrongKernelScope<NormConvSpec> wrong;
    const WrongKernelScope<ConvSpec> right(Wrong::kNever);
    EXPECT_EQ(compared(), (Counts{{1, 1}, {1, 1}}));
  }
}

}  // namespace
}  // namespace singa::test
