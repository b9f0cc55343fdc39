// Results of elementwise operations and norms that are dropped and computed again.

#include <algorithm>
#include <string>

#include "model/passes/drawn_step.h"
#include "model/passes/recorded.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/linalg.h"

namespace singa::test {
namespace {

/// Layers of a product and an activation, forward and backward. Backward reads the products and the
/// results of the activation.
Step Layers(const std::vector<Tensor>& weights, UnaryOp activation) {
  return [=](const std::vector<Tensor>& in) {
    std::vector<Tensor> y{in[0]}, products;
    for (const Tensor& W : weights) {
      products.push_back(LinearForward(y.back(), W, {}));
      y.push_back(Unary(activation, products.back()));
    }
    Tensor dy = y.back();
    std::vector<Tensor> results;
    for (size_t i = weights.size(); i-- > 0;) {
      const Tensor dh = UnaryBackward(activation, dy, products[i], {});
      const std::vector<Tensor> gradients =
          LinearBackward(dh, y[i], weights[i], false, true, true, false);
      dy = gradients[0];
      results.push_back(gradients[1]);
    }
    results.push_back(dy);
    return results;
  };
}

struct Network {
  Network(int layers, int64_t rows, int64_t width) {
    Random random(7);
    x = RandomTensor(random, {rows, width});
    for (int i = 0; i < layers; ++i) weights.push_back(RandomTensor(random, {width, width}));
  }
  Tensor x;
  std::vector<Tensor> weights;
};

int64_t Count(const std::vector<std::string>& names, const std::string& name) {
  return std::count(names.begin(), names.end(), name);
}

TEST(RecomputeCheap, ResultsOfActivationsAreDroppedAndProductsStay) {
  constexpr int kLayers = 8;
  const Network net(kLayers, 512, 32);
  const size_t bytes = 512 * 32 * sizeof(float);
  const Step step = Layers(net.weights, UnaryOp::kHardSwish);
  std::vector<Tensor> plain, less;
  const RecordingPtr kept = Recorded(step, {net.x}, PassOptions{.training = true}, &plain);
  const RecordingPtr dropped =
      Recorded(step, {net.x}, PassOptions{.training = true, .recompute = true}, &less);
  ExpectSame(less, plain, "dropped");
  const std::vector<std::string> names = Operations(*dropped);
  EXPECT_EQ(Count(names, "LinearForward"), kLayers);
  // The last one goes into backward at once. The one before it may be needed where memory is at its
  // peak, which depends on the workspaces of products.
  EXPECT_GE(Count(names, "HardSwish"), kLayers + kLayers - 2);
  EXPECT_LE(Count(names, "HardSwish"), kLayers + kLayers - 1);
  const size_t before = Graph(kept).memory().arena, after = Graph(dropped).memory().arena;
  EXPECT_EQ(before - after, (kLayers - 2) * bytes);
  EXPECT_TRUE(Graph(dropped).Replay({net.x}));
}

TEST(RecomputeCheap, ByDefaultItTakesThreePercentOfTheTimeOfLargeSteps) {
  constexpr int kLayers = 10;
  const auto again = [&](int64_t rows, int64_t width, UnaryOp activation) {
    const Network net(kLayers, rows, width);
    const Step step = Layers(net.weights, activation);
    std::vector<Tensor> plain, less;
    Recorded(step, {net.x}, PassOptions{.training = true}, &plain);
    const RecordingPtr recording =
        Recorded(step, {net.x}, PassOptions{.training = true, .recompute_cheap = true}, &less);
    ExpectSame(less, plain, "rows " + std::to_string(rows));
    return Count(Operations(*recording), activation == UnaryOp::kGelu ? "Gelu" : "HardSwish") -
           kLayers;
  };
  EXPECT_EQ(again(512, 32, UnaryOp::kHardSwish), 0);  // small
  const int64_t cheap = again(1 << 14, 64, UnaryOp::kHardSwish);
  const int64_t slow = again(1 << 14, 64, UnaryOp::kGelu);
  EXPECT_GT(cheap, slow);
  EXPECT_LT(cheap, kLayers - 2);
}

TEST(RecomputeCheap, DrawnStepsHaveTheSameBits) {
  constexpr int64_t kElements = 1 << 10;
  int more = 0;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    std::vector<Tensor> results[2];
    size_t nodes[2];
    for (const bool recompute : {false, true}) {
      Random random(seed);
      const Tensor x = RandomTensor(random, {kElements});
      std::vector<Tensor> parameters;
      for (int i = 0; i < 3; ++i) parameters.push_back(RandomTensor(random, {kElements}));
      DefaultDevice()->SetRandSeed(seed);
      const Step step = Drawn(seed, parameters, kElements);
      const PassOptions options{.training = true, .recompute = recompute};
      const RecordingPtr recording = Recorded(step, {x}, options, &results[recompute]);
      for (const Tensor& t : parameters) results[recompute].push_back(t);
      nodes[recompute] = recording->step().nodes().size();
    }
    ExpectSame(results[1], results[0], "seed " + std::to_string(seed));
    more += nodes[1] > nodes[0];
  }
  EXPECT_GT(more, 30);
}

}  // namespace
}  // namespace singa::test
