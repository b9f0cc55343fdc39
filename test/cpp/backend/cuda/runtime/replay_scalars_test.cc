// Scalars that change between the launches of a captured graph: those of updates and random
// numbers.

#include "backend/cuda/kernels/scalar_argument.h"

#include "backend/cuda/test_gpu.h"
#include "core/graph/capture.h"
#include "emulated_gpu/queue.h"
#include "singa/operation/dropout.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/optimizer.h"
#include "singa/operation/random.h"
#include "support.h"

namespace singa::test {
namespace {

using Tensors = std::vector<Tensor>;
using AllValues = std::vector<Vector>;

class NumbersTest : public ::testing::Test {
 protected:
  /// Replays once. Does not wait for the device, so several replays may be queued.
  Tensors Replay(Graph& graph, const Tensor& x) {
    const uint64_t before = cuda::emulated::Queued();
    EXPECT_TRUE(graph.Start({x}));
    graph.Run(0);
    Tensors results = graph.Finish();
    queued_ = cuda::emulated::Queued() - before;
    return results;
  }

  const DevicePtr gpu_ = Gpu();
  uint64_t queued_ = 0;  ///< by the last replay
};

// ---- updates

/// Parameters with their gradients and states.
struct Updated {
  Tensors params, gradients, first, second;
};
/// An update with the numbers of `step`. Without tensors, it only reports them to `numbers`.
using Update = std::function<void(const Updated&, const Vector& weight_decay, int step,
                                  UpdateScalars* numbers)>;

Update Sgd(double momentum, bool nesterov) {
  return [=](const Updated& u, const Vector& decay, int step, UpdateScalars* numbers) {
    SgdUpdate(u.params, u.gradients, momentum > 0 ? u.first : Tensors(), decay, 0.1 / step,
              momentum / step, nesterov || momentum == 0 ? 0 : 0.05 * step, nesterov, false,
              numbers);
  };
}

Update Adam(bool decoupled) {
  return [=](const Updated& u, const Vector& decay, int step, UpdateScalars* numbers) {
    AdamUpdate(u.params, u.gradients, u.first, u.second, decay, 0.1 / step, 0.9 - 0.1 / step, 0.99,
               1e-6 * step, step, decoupled, numbers);
  };
}

void RmsProp(const Updated& u, const Vector& decay, int step, UpdateScalars* numbers) {
  RmsPropUpdate(u.params, u.gradients, u.first, decay, 0.1 / step, 0.8 - 0.1 / step, 1e-6 * step,
                numbers);
}

void AdaGrad(const Updated& u, const Vector& decay, int step, UpdateScalars* numbers) {
  AdaGradUpdate(u.params, u.gradients, u.first, decay, 0.1 / step, 1e-6 * step, numbers);
}

Updated NewUpdated(const DevicePtr& device, DType dtype) {
  Random random(7);
  Updated u;
  const DType wide = dtype == kFloat64 ? kFloat64 : kFloat32;
  for (const Shape& shape : {Shape{5, 3}, Shape{2, 7}}) {
    u.params.push_back(RandomTensor(random, shape, dtype).ToDevice(device));
    u.first.push_back(RandomTensor(random, shape, wide, 0, 1).ToDevice(device));
    u.second.push_back(RandomTensor(random, shape, wide, 0, 1).ToDevice(device));
  }
  return u;
}

Tensors GradientsOf(const Tensor& x) {
  return {Unary(UnaryOp::kMulScalar, x.SliceAxis(0, 0, 15).Reshape({5, 3}), 3),
          Unary(UnaryOp::kAddScalar, x.SliceAxis(0, 15, 29).Reshape({2, 7}), 1)};
}

TEST_F(NumbersTest, CapturedUpdatesHaveThoseOfEachStep) {
  const std::pair<const char*, Update> updates[] = {
      {"SGD", Sgd(0, false)},        {"momentum", Sgd(0.9, false)}, {"nesterov", Sgd(0.9, true)},
      {"RMSProp", RmsProp},          {"AdaGrad", AdaGrad},          {"Adam", Adam(false)},
      {"decoupled Adam", Adam(true)}};
  const Vector weight_decay = {1e-2, 0.3};  // two groups: two nodes
  for (const auto& [name, update] : updates) {
    for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
      SCOPED_TRACE(std::string(name) + " " + DTypeName(dtype));
      Updated executed = NewUpdated(gpu_, dtype), replayed = NewUpdated(gpu_, dtype);
      UpdateScalars numbers;
      std::unique_ptr<Graph> graph;
      Random random(5);
      for (int step = 1; step <= 6; ++step) {
        const Tensor x = RandomTensor(random, {29}, dtype).ToDevice(gpu_);
        executed.gradients = GradientsOf(x);
        update(executed, weight_decay, step, nullptr);
        if (!graph) {
          graph = GraphOf(
              [&](const Tensor& input) {
                replayed.gradients = GradientsOf(input);
                update(replayed, weight_decay, step, &numbers);
                replayed.gradients.clear();
                return Tensors();
              },
              x);
          continue;
        }
        update({}, {}, step, &numbers);
        Replay(*graph, x);
        // The input, the numbers, all nodes.
        if (step > 2) {
          EXPECT_EQ(queued_, 3u) << step;
        }
      }
      EXPECT_EQ(ValuesOf(replayed.params), ValuesOf(executed.params));
      EXPECT_EQ(ValuesOf(replayed.first), ValuesOf(executed.first));
      EXPECT_EQ(ValuesOf(replayed.second), ValuesOf(executed.second));
    }
  }
}

// ---- random numbers

TEST_F(NumbersTest, CapturedRandomNumbersAreThoseOfExecutedOperationsAndOfTheCpu) {
  const auto draw = [](const Tensor& x) {
    Tensors drawn;
    for (int i = 0; i < 3; ++i) drawn.emplace_back(x.shape(), x.device(), x.data_type());
    Uniform(-1, 2, drawn[0]);
    Bernoulli(0.3, drawn[1]);
    Gaussian(0.5, 2, drawn[2]);
    for (const double ratio : {0.25, 0.6})
      for (const Tensor& t : DropoutForward(x, ratio)) drawn.push_back(t);
    return drawn;
  };
  const DevicePtr cpu = DefaultDevice();
  for (const DType dtype : {kFloat32, kBFloat16, kFloat64}) {
    SCOPED_TRACE(DTypeName(dtype));
    Random random(3);
    std::vector<Tensor> inputs;
    for (int step = 0; step < 6; ++step)
      inputs.push_back(RandomTensor(random, {33}, dtype));  // odd: draws begin anywhere in a block
    std::vector<AllValues> on_cpu, executed;
    cpu->SetRandSeed(9);
    for (const Tensor& x : inputs) on_cpu.push_back(ValuesOf(draw(x)));
    gpu_->SetRandSeed(9);
    for (const Tensor& x : inputs) executed.push_back(ValuesOf(draw(x.ToDevice(gpu_))));
    gpu_->SetRandSeed(9);
    const auto graph = GraphOf(draw, inputs[0].ToDevice(gpu_));
    std::vector<Tensors> replayed;
    for (size_t step = 1; step < inputs.size(); ++step) {
      replayed.push_back(Replay(*graph, inputs[step].ToDevice(gpu_)));
      // The input, the numbers, all nodes, seven results.
      if (step > 1) {
        EXPECT_EQ(queued_, 10u) << step;
      }
    }
    for (size_t step = 1; step < inputs.size(); ++step) {
      AllValues got = ValuesOf(replayed[step - 1]);
      EXPECT_EQ(got, executed[step]) << step;
      constexpr size_t kGaussian = 2;  // may differ by rounding
      got[kGaussian] = on_cpu[step][kGaussian];
      EXPECT_EQ(got, on_cpu[step]) << step;
    }
  }
}

TEST_F(NumbersTest, OneMoreOperationThanCapturedWorkHasPlacesForStaysByItself) {
  const auto drop = [](const Tensor& x) {
    Tensor y = x;
    for (size_t i = 0; i < cuda::ReplayScalars::kMaxSlots + 4; ++i) y = DropoutForward(y, 0.02)[0];
    return Tensors{y};
  };
  const Tensor x = Full({50}, 1, gpu_);
  std::vector<AllValues> want;
  gpu_->SetRandSeed(4);
  for (int step = 0; step < 5; ++step) want.push_back(ValuesOf(drop(x)));
  gpu_->SetRandSeed(4);
  const auto graph = GraphOf(drop, x);
  for (size_t step = 1; step < want.size(); ++step)
    EXPECT_EQ(ValuesOf(Replay(*graph, x)), want[step]) << step;
  // The input, numbers and nodes, a node that is queued by itself, numbers and nodes, the result.
  EXPECT_EQ(queued_, 7u);
}

/// Fills its output with its position as a kernel argument, not through memory.
class Position final : public Plan {
 public:
  Position() : Plan("test") {}
  void Run(const Execution& execution) const override {
    execution.device.FillElements(execution.outputs[0],
                                  static_cast<double>(execution.scalars.offset));
  }
};

TEST_F(NumbersTest, WhoDoesNotAskForThemStaysByItself) {
  const PlanPtr position = std::make_shared<Position>();
  const auto twice = [](const Tensor& t) {
    return Unary(UnaryOp::kAddScalar, Unary(UnaryOp::kAddScalar, t, 1), 1);
  };
  const auto step = [&](const Tensor& x) {
    const Tensor y = twice(x), z({4}, gpu_, kFloat32);
    Scalars scalars;
    gpu_->TakeRandom(3, &scalars);
    gpu_->Exec("Position", position, {}, {&z, 1}, scalars);
    return Tensors{y, twice(z)};
  };
  gpu_->SetRandSeed(1);
  const auto graph = GraphOf(step, Full({4}, 0, gpu_));
  for (int i = 1; i < 5; ++i) {
    const Tensors results = Replay(*graph, Full({4}, i, gpu_));
    EXPECT_EQ(Values(results[0]), Vector(4, i + 2));
    EXPECT_EQ(Values(results[1]), Vector(4, 3 * i + 2));
  }
  // The input, two nodes, the node queued by itself, two nodes, the results.
  EXPECT_EQ(queued_, 6u);
}

TEST_F(NumbersTest, AreFollowedOnlyWhereSomethingIsCaptured) {
  auto& capturer = dynamic_cast<Capturer&>(*gpu_);
  const Scalars scalars;
  EXPECT_ERROR(std::logic_error, "nothing is captured on", capturer.CaptureLive(scalars, [] {}));
}

}  // namespace
}  // namespace singa::test
