// The list of passes: their order, and their two phases.

#include "model/passes/passes.h"

#include <algorithm>

#include "model/passes/recorded.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"

namespace singa::test {
namespace {

using Names = std::vector<std::string>;

TEST(Passes, SumsOfGradientsAreMergedBeforeChainsTakeThem) {
  Random random(5);
  const Shape shape{4, 3, 5, 6}, channels{3};
  const Tensor x = RandomTensor(random, shape), residual = RandomTensor(random, shape);
  const Tensor dy = RandomTensor(random, shape), scale = RandomTensor(random, channels);
  const Tensor bias = RandomTensor(random, channels);
  const BatchNormHandle handle(0.1, x);
  const Step step = [&](const std::vector<Tensor>& in) {
    const std::vector<Tensor> forward =
        BatchNormForwardTraining(handle, in[0], scale, bias, {}, {}, residual, true);
    const Tensor sum = Unary(UnaryOp::kMulScalar, dy, 3);
    Axpy(1, Unary(UnaryOp::kAddScalar, dy, 0.25), sum);
    return BatchNormBackward(handle, sum, in[0], scale, forward[1], forward[2], true, true, true,
                             bias, forward[0], true);
  };
  std::vector<Tensor> plain, merged;
  EXPECT_EQ(
      Operations(*Recorded(step, {x}, PassOptions{}, &plain)),
      (Names{"BatchNormForwardTraining", "MulScalar", "AddScalar", "Axpy", "BatchNormBackward"}));
  const PassOptions all{.training = true, .fuse = true, .recompute = true};
  EXPECT_EQ(Operations(*Recorded(step, {x}, all, &merged)),
            (Names{"BatchNormForwardTraining", "MulScalar+AddScalar", "Axpy+BatchNormBackward"}));
  ExpectSame(merged, plain, "merged");
}

/// A 1 x 1 convolution with frozen batch norm and ReLU.
struct FrozenNet {
  std::vector<Tensor> operator()(const std::vector<Tensor>& in) const {
    const Tensor y = ConvForward(in[0], W, Tensor(), handle);
    return {Unary(UnaryOp::kRelu, BatchNormForwardInference(norm, y, scale, bias, mean, var))};
  }

  /// The same from the definition.
  Vector Expected() const {
    const Vector images = Values(x), filters = Values(W);
    Vector result;
    for (size_t f = 0; f < kFilters; ++f)
      for (size_t p = 0; p < kPixels; ++p) {
        double sum = 0;
        for (size_t c = 0; c < kChannels; ++c)
          sum += images[c * kPixels + p] * filters[f * kChannels + c];
        const double normalized =
            (sum - Values(mean)[f]) / std::sqrt(Values(var)[f] + norm.epsilon);
        result.push_back(std::max(0.0, normalized * Values(scale)[f] + Values(bias)[f]));
      }
    return result;
  }

  static constexpr int64_t kChannels = 3, kFilters = 4, kPixels = 20;
  Random random{7};
  Tensor x = RandomTensor(random, {1, kChannels, 4, 5});
  Tensor W = RandomTensor(random, {kFilters, kChannels, 1, 1});
  Tensor scale = RandomTensor(random, {kFilters}, kFloat32, 0.5, 2);
  Tensor bias = RandomTensor(random, {kFilters});
  Tensor mean = RandomTensor(random, {kFilters});
  Tensor var = RandomTensor(random, {kFilters}, kFloat32, 0.5, 2);
  ConvHandle handle{x, {1, 1}, {1, 1}, {0, 0}, kChannels, kFilters, false};
  BatchNormHandle norm{0.1, Tensor({1, kFilters, 4, 5})};
};

void ExpectClose(const Tensor& got, const Vector& want) {
  ExpectNear(got, want, Vector(want.size(), 1e-5), "replayed");
}

TEST(Passes, AGraphFoldsAndPreparesAndTheRecordingStaysAsItIs) {
  FrozenNet net;
  const std::vector<Tensor> executed = net({net.x});
  std::vector<Tensor> results;
  const RecordingPtr recording = Recorded(net, {net.x}, PassOptions{}, &results);
  const Names recorded = Operations(*recording);
  ExpectSame(results, executed, "recorded");

  Graph graph(recording), twin(recording);
  EXPECT_EQ(Operations(*recording), recorded);
  EXPECT_LT(graph.memory().nodes, recorded.size());
  EXPECT_GT(graph.memory().prepared, 0u);
  for (double factor : {1.0, -2.0}) {  // a parameter that changes is prepared again
    UnaryInto(UnaryOp::kMulScalar, net.scale, net.scale, factor);
    for (Graph* each : {&graph, &twin}) {
      const auto replayed = each->Replay({net.x});
      ASSERT_TRUE(replayed);
      ExpectClose(replayed->at(0), net.Expected());
    }
  }
}

TEST(Passes, AStepWithHostCallsIsNotFolded) {
  const FrozenNet net;
  const auto recording = std::make_shared<Recording>(net.x.device(), nullptr);
  UsePasses(*recording, {});
  recording->Start({net.x});
  const std::vector<Tensor> results = net({net.x});
  recording->Pause({});
  recording->Resume();
  recording->Finish(results);
  const Graph graph(recording);
  EXPECT_EQ(graph.segments(), 2);
  EXPECT_EQ(graph.memory().nodes, recording->step().nodes().size());
  EXPECT_EQ(graph.memory().prepared, 0u);
}

}  // namespace
}  // namespace singa::test
