// Results that are dropped and computed again, so that a step keeps to a limit.

#include "model/passes/memory_limit.h"

#include <algorithm>
#include <string>

#include "model/passes/drawn_step.h"
#include "model/passes/recorded.h"
#include "singa/core/error.h"
#include "singa/operation/elementwise.h"

namespace singa::test {
namespace {

constexpr int64_t kElements = 1 << 12;
constexpr size_t kBytes = kElements * sizeof(float);

/// Records within a limit, which notes what that takes.
RecordingPtr RecordedWithin(const Step& step, const std::vector<Tensor>& inputs,
                            const MemoryLimitPtr& limit, std::vector<Tensor>* results) {
  const auto recording = std::make_shared<Recording>(inputs.at(0).device(), nullptr);
  UsePasses(*recording, {.training = true}, limit);
  recording->Start(inputs);
  *results = step(inputs);
  recording->Finish(*results);
  return recording;
}

Tensor TanhBackward(const Tensor& dy, const Tensor& y) {
  return Binary(BinaryOp::kMul, dy, Unary(UnaryOp::kAddScalar, Binary(BinaryOp::kMul, y, y), 1));
}

/// Forward of `layers` layers, whose results backward needs in reverse order.
Step Chain(int layers) {
  return [=](const std::vector<Tensor>& in) {
    std::vector<Tensor> y{in[0]};
    for (int i = 0; i < layers; ++i) y.push_back(Unary(UnaryOp::kTanh, y.back()));
    Tensor dy = y.back();
    for (int i = layers; i > 0; --i) dy = TanhBackward(dy, y[static_cast<size_t>(i)]);
    return std::vector<Tensor>{dy};
  };
}

TEST(MemoryLimit, AChainOfLayersFitsIntoAFractionOfItsMemory) {
  constexpr int kLayers = 100;
  Random random(3);
  const Tensor x = RandomTensor(random, {kElements});
  std::vector<Tensor> plain, within;
  const GraphMemory all = Graph(Recorded(Chain(kLayers), {x}, nullptr, &plain)).memory();
  EXPECT_GE(all.arena, kLayers * kBytes);
  for (const int values : {60, 40, 26, 20, 16}) {
    const auto limit = std::make_shared<MemoryLimit>((values + 2) * kBytes);  // and x, the result
    const RecordingPtr recording = RecordedWithin(Chain(kLayers), {x}, limit, &within);
    ExpectSame(within, plain, "within " + std::to_string(values));
    EXPECT_LE(limit->outside + limit->arena, limit->bytes);
    EXPECT_EQ(Graph(recording).memory().arena, limit->arena);
    // So many are dropped when forward ends. Down to 2 √layers none is computed a third time.
    const auto dropped = static_cast<uint64_t>(kLayers - values + 1);
    if (values >= 20) {
      EXPECT_EQ(limit->again, dropped) << values;
    } else {
      EXPECT_GT(limit->again, dropped) << values;
      EXPECT_LT(limit->again, 2 * dropped) << values;
    }
    EXPECT_EQ(limit->multiply_adds, 0u);
    EXPECT_GT(limit->share, 0);
  }
}

TEST(MemoryLimit, TheSmallestLimitIsNamedAndWorks) {
  Random random(3);
  const Tensor x = RandomTensor(random, {kElements});
  std::vector<Tensor> plain, within;
  Recorded(Chain(50), {x}, nullptr, &plain);
  std::string message;
  try {
    RecordedWithin(Chain(50), {x}, std::make_shared<MemoryLimit>(kBytes), &within);
  } catch (const OutOfMemory& error) {
    message = error.what();
  }
  const std::string before = "[compile] memory_limit is 16.0 KiB, and the step needs ";
  ASSERT_EQ(message.substr(0, before.size()), before);
  const double kib = std::stod(message.substr(before.size()));
  EXPECT_LT(kib * 1024, 20.0 * kBytes);
  const auto limit = std::make_shared<MemoryLimit>(static_cast<uint64_t>(kib * 1024));
  RecordedWithin(Chain(50), {x}, limit, &within);
  ExpectSame(within, plain, "within the smallest");
  EXPECT_LE(limit->outside + limit->arena, limit->bytes);
}

TEST(MemoryLimit, DrawnStepsHaveTheSameBits) {
  int fewer = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::vector<Tensor> plain, within;
    uint64_t most = 0, smallest = 0;
    for (const double share : {-1.0, 0.0, 0.3, 0.7}) {
      Random random(seed);
      const Tensor x = RandomTensor(random, {kElements});
      std::vector<Tensor> parameters;
      for (int i = 0; i < 3; ++i) parameters.push_back(RandomTensor(random, {kElements}));
      DefaultDevice()->SetRandSeed(seed);
      const Step step = Drawn(seed, parameters, kElements);
      if (share < 0) {
        const auto large = std::make_shared<MemoryLimit>(1 << 30);
        RecordedWithin(step, {x}, large, &plain);
        plain.insert(plain.end(), parameters.begin(), parameters.end());
        most = large->outside + large->arena;
        continue;
      }
      const std::string what = "seed " + std::to_string(seed) + ", " + std::to_string(share);
      if (smallest == 0) {
        try {
          RecordedWithin(step, {x}, std::make_shared<MemoryLimit>(1), &within);
        } catch (const OutOfMemory& error) {
          const std::string message = error.what(), before = "needs ";
          smallest = static_cast<uint64_t>(
              1024 * std::stod(message.substr(message.find(before) + before.size())));
        }
        DefaultDevice()->SetRandSeed(seed);
      }
      const uint64_t bytes = smallest + static_cast<uint64_t>(share * double(most - smallest));
      const auto limit = std::make_shared<MemoryLimit>(bytes);
      const RecordingPtr recording = RecordedWithin(step, {x}, limit, &within);
      within.insert(within.end(), parameters.begin(), parameters.end());
      ExpectSame(within, plain, what);
      EXPECT_LE(limit->outside + limit->arena, bytes) << what;
      fewer += limit->again > 0;
      // A replay draws the same numbers, and goes on from the parameters.
      DefaultDevice()->SetRandSeed(seed);
      EXPECT_TRUE(Graph(recording).Replay({x})) << what;
    }
  }
  EXPECT_GT(fewer, 60);
}

}  // namespace
}  // namespace singa::test
