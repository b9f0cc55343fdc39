// Operations that are captured on the emulated GPU and launched as a whole, and graphs that are
// replayed this way.

#include "core/graph/capture.h"

#include <thread>

#include "backend/cuda/runtime/runtime.h"
#include "backend/cuda/test_gpu.h"
#include "core/graph/captured_work.h"
#include "emulated_gpu/queue.h"
#include "model/dispatch/measure.h"
#include "singa/core/graph.h"
#include "singa/core/stats.h"
#include "singa/operation/conv.h"
#include "singa/operation/dropout.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/linalg.h"
#include "singa/operation/loss.h"
#include "singa/operation/optimizer.h"
#include "support.h"

namespace singa::test {
namespace {

Vector Four(double value) { return Vector(4, value); }

class CaptureTest : public ::testing::Test {
 protected:
  /// Replays a graph on four values i for each i from 0 to 3, and expects four of expected(i).
  /// Returns how much the last replay queues.
  template <class Expected>
  uint64_t LastQueued(Graph& graph, const Expected& expected) const {
    uint64_t queued = 0;
    for (int i = 0; i < 4; ++i) {
      const Tensor x = Full({4}, i, gpu_);
      const uint64_t before = cuda::emulated::Queued();
      EXPECT_TRUE(graph.Start({x}));
      graph.Run(0);
      const Tensor y = graph.Finish()[0];
      queued = cuda::emulated::Queued() - before;
      EXPECT_EQ(Values(y), Four(expected(i)));
    }
    return queued;
  }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& queue) const {
    return dynamic_cast<Capturer&>(*gpu_).Capture(queue);
  }
  const DevicePtr gpu_ = Gpu();
};

TEST_F(CaptureTest, RunsAtEachLaunchOnWhatItsMemoryHoldsThen) {
  const Tensor x = Full({4}, 1, gpu_), y = Full({4}, 0, gpu_);
  const auto work = Capture([&] {
    UnaryInto(UnaryOp::kMulScalar, x, y, 2);
    UnaryInto(UnaryOp::kAddScalar, y, y, 1);
  });
  EXPECT_EQ(Values(y), Four(0));
  const uint64_t before = cuda::emulated::Queued();
  work->Launch();
  EXPECT_EQ(cuda::emulated::Queued(), before + 1);
  EXPECT_EQ(Values(y), Four(3));
  Tensor(x).Fill(5);
  work->Launch();
  EXPECT_EQ(Values(y), Four(11));
}

TEST_F(CaptureTest, OtherThreadsGoOnMeanwhile) {
  const Tensor x = Full({4}, 1, gpu_), y = Full({4}, 0, gpu_);
  const auto work = Capture([&] {
    std::thread([&] {
      const Tensor z = Full({4}, 7, gpu_);
      EXPECT_EQ(Values(Unary(UnaryOp::kAddScalar, z, 1)), Four(8));
    }).join();
    UnaryInto(UnaryOp::kAddScalar, x, y, 1);
  });
  EXPECT_EQ(Values(y), Four(0));
  work->Launch();
  EXPECT_EQ(Values(y), Four(2));
}

TEST_F(CaptureTest, RefusesWhatWouldNotBeDoneAgain) {
  const Tensor x = Full({4}, 1, gpu_), y = Full({4}, 0, gpu_);
  float host[4] = {};
  const std::pair<const char*, std::function<void()>> refused[] = {
      {"takes memory", [&] { Unary(UnaryOp::kAddScalar, x, 1); }},
      {"copies from the host", [&] { Tensor(y).CopyFromHost(host, sizeof(host)); }},
      {"copies to the host", [&] { x.CopyToHost(host, sizeof(host)); }},
      {"waits", [&] { gpu_->Sync(); }},
      {"waits", [&] { gpu_->EmptyCache(); }},
      {"captures", [&] { Capture([] {}); }}};
  for (const auto& [what, ask] : refused) {
    const auto capture = [&] {
      Capture([&] {
        UnaryInto(UnaryOp::kAddScalar, x, y, 1);
        SetCurrentOp("Asker");
        ask();
      });
    };
    ExpectError<NotCapturable>(capture, what);
    if (std::string(what) != "takes memory") ExpectError<NotCapturable>(capture, "[Asker]");
    EXPECT_EQ(Values(y), Four(0)) << what;  // and nothing else was done
  }
  UnaryInto(UnaryOp::kAddScalar, x, y, 1);
  EXPECT_EQ(Values(y), Four(2));
}

/// Convolution, ReLU, dropout, product and loss, and backward.
struct Network {
  explicit Network(const DevicePtr& device) {
    Random random(11);
    filters = RandomTensor(random, {4, 2, 3, 3}).ToDevice(device);
    bias = RandomTensor(random, {4}).ToDevice(device);
    weight = RandomTensor(random, {4 * 5 * 5, 3}).ToDevice(device);
  }

  std::vector<Tensor> Step(const Tensor& x, const Tensor& labels, double lr,
                           UpdateScalars* numbers) const {
    const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 2, 4);
    const Tensor y = ConvForward(x, filters, bias, handle);
    const Tensor positive = Unary(UnaryOp::kRelu, y);
    const std::vector<Tensor> kept = DropoutForward(positive, 0.25);
    const Tensor flat = kept[0].Reshape({x.shape()[0], 4 * 5 * 5});
    const std::vector<Tensor> loss = SoftmaxCrossEntropyForward(MatMul(flat, weight), labels, 0.1);
    const Tensor slope = Full({}, 1, x.device());
    const std::vector<Tensor> product =
        MatMulBackward(SoftmaxCrossEntropyBackward(slope, loss[1], labels, 0.1), flat, weight,
                       false, false, true, true);
    const Tensor dropped = DropoutBackward(product[0].Reshape(y.shape()), kept[1], 0.25);
    const std::vector<Tensor> gradients = ConvBackward(
        UnaryBackward(UnaryOp::kRelu, dropped, y, positive), x, filters, handle, false, true, true);
    SgdUpdate({filters, bias, weight}, {gradients[1], gradients[2], product[1]}, {}, {0, 0, 0}, lr,
              0, 0, false, false, numbers);
    return {loss[0]};
  }

  std::vector<Vector> Parameters() const { return {Values(filters), Values(bias), Values(weight)}; }

  Tensor filters, bias, weight;
};

/// A network whose steps are recorded and replayed.
class Replayed {
 public:
  explicit Replayed(const DevicePtr& device) : network(device) {}

  double Step(const Tensor& x, const Tensor& labels, double lr) {
    if (!graph_) return Record(x, labels, lr);
    SgdUpdate({}, {}, {}, {}, lr, 0, 0, false, false, numbers_.get());
    const uint64_t before = cuda::emulated::Queued();
    EXPECT_TRUE(graph_->Start({x, labels}));
    graph_->Run(0);
    const std::vector<Tensor> results = graph_->Finish();
    queued = cuda::emulated::Queued() - before;
    return results[0].Item();
  }
  bool recorded() const { return graph_ != nullptr; }
  const Graph& graph() const { return *graph_; }

  Network network;
  uint64_t queued = 0;  ///< by the last replay

 private:
  double Record(const Tensor& x, const Tensor& labels, double lr) {
    const auto recording = std::make_shared<Recording>(x.device(), arena_);
    numbers_ = std::make_unique<UpdateScalars>();
    recording->Start({x, labels});
    const std::vector<Tensor> results = network.Step(x, labels, lr, numbers_.get());
    recording->Finish(results);
    if (last_ && Graph::Difference(*last_, *recording).empty())
      graph_ = std::make_unique<Graph>(recording);
    last_ = recording;
    return results[0].Item();
  }

  const ArenaPtr arena_ = std::make_shared<Arena>(Gpu());
  std::unique_ptr<UpdateScalars> numbers_;
  RecordingPtr last_;
  std::unique_ptr<Graph> graph_;
};

TEST_F(CaptureTest, ARecordedStepIsAFewLaunches) {
  const Network executed(gpu_);
  Replayed replayed(gpu_);
  Random random(5);
  uint64_t one_by_one = 0;
  int captured = 0;
  for (int step = 0; step < 14; ++step) {
    const Tensor x = RandomTensor(random, {3, 2, 5, 5}).ToDevice(gpu_);
    const Tensor labels = FromValues({3}, {0, 2, 1}, kInt32).ToDevice(gpu_);
    const double lr = 0.1 / (step + 1);
    if (step == 9) {  // memory moves, and the layout must be restored
      replayed.network.filters.block()->MakePlain();
      executed.filters.block()->MakePlain();
    }
    gpu_->SetRandSeed(static_cast<uint64_t>(step));
    const double want = executed.Step(x, labels, lr, nullptr)[0].Item();
    gpu_->SetRandSeed(static_cast<uint64_t>(step));
    const bool replays = replayed.recorded();
    EXPECT_EQ(replayed.Step(x, labels, lr), want) << step;
    EXPECT_EQ(replayed.network.Parameters(), executed.Parameters()) << step;
    if (!replays) continue;
    if (one_by_one == 0) one_by_one = replayed.queued;  // the first replay captures nothing
    // Two inputs, the numbers of dropout and the update, all nodes, one result.
    constexpr uint64_t kLaunches = 5;
    if (replayed.queued == kLaunches) ++captured;
  }
  EXPECT_GT(one_by_one, 14u);
  EXPECT_GE(captured, 5);
  EXPECT_GT(replayed.graph().memory().fixed, 0u);
}

TEST_F(CaptureTest, FaultsOfCapturedKernelsAreRaised) {
  Replayed replayed(gpu_);
  const Tensor x = Full({3, 2, 5, 5}, 1, gpu_);
  const Tensor labels = FromValues({3}, {0, 2, 1}, kInt32).ToDevice(gpu_);
  for (int step = 0; step < 6; ++step) replayed.Step(x, labels, 0.1);
  const Tensor wrong = FromValues({3}, {0, 3, 1}, kInt32).ToDevice(gpu_);
  EXPECT_ERROR(std::out_of_range, "[SoftmaxCrossEntropyForward] index 3 at position 1",
               replayed.Step(x, wrong, 0.1));
  EXPECT_NO_THROW(gpu_->Sync());  // backward reported the same fault
  EXPECT_NO_THROW(replayed.Step(x, labels, 0.1));
}

TEST_F(CaptureTest, WhoProfilesSeesEachOperation) {
  const auto graph = GraphOf(
      [](const Tensor& x) {
        return std::vector<Tensor>{Unary(UnaryOp::kAddScalar, Unary(UnaryOp::kMulScalar, x, 2), 1)};
      },
      Full({4}, 1, gpu_));
  for (int i = 0; i < 4; ++i) {
    SetProfiling(i == 2);
    ASSERT_TRUE(graph->Start({Full({4}, i, gpu_)}));
    graph->Run(0);
    EXPECT_EQ(Values(graph->Finish()[0]), Four(2 * i + 1));
    SetProfiling(false);
    size_t seen = 0;
    for (const ProfileRecord& record : TakeProfile())
      seen += record.op == "AddScalar" || record.op == "MulScalar";
    EXPECT_EQ(seen, i == 2 ? 2u : 0u);
  }
}

TEST_F(CaptureTest, WhatAStepWritesToItsInputArrives) {
  const auto graph = GraphOf(
      [](const Tensor& x) {
        UnaryInto(UnaryOp::kMulScalar, x, x, 2);
        return std::vector<Tensor>{Unary(UnaryOp::kAddScalar, x, 1)};
      },
      Full({4}, 1, gpu_));
  for (int i = 1; i < 5; ++i) {
    const Tensor x = Full({4}, i, gpu_);
    ASSERT_TRUE(graph->Start({x}));
    graph->Run(0);
    EXPECT_EQ(Values(graph->Finish()[0]), Four(2 * i + 1));
    EXPECT_EQ(Values(x), Four(2 * i));
  }
}

/// A plan that copies through memory that it allocates when it runs.
class Greedy final : public Plan {
 public:
  Greedy() : Plan("test") {}
  void Run(const Execution& execution) const override {
    const Tensor& from = execution.inputs[0];
    const Tensor between(from.shape(), from.device(), from.data_type());
    execution.device.CopyElements(from, between);
    execution.device.CopyElements(between, execution.outputs[0]);
  }
};

TEST_F(CaptureTest, WhatCannotBeCapturedIsQueuedBetween) {
  const PlanPtr greedy = std::make_shared<Greedy>();
  const auto graph = GraphOf(
      [&](const Tensor& x) {
        Tensor y = x;
        for (int i = 0; i < 3; ++i) y = Unary(UnaryOp::kAddScalar, y, 1);
        const Tensor z(y.shape(), y.device(), y.data_type());
        gpu_->Exec("Greedy", greedy, {&y, 1}, {&z, 1});
        y = z;
        for (int i = 0; i < 3; ++i) y = Unary(UnaryOp::kAddScalar, y, 1);
        return std::vector<Tensor>{y};
      },
      Full({4}, 1, gpu_));
  EXPECT_EQ(LastQueued(*graph, [](int i) { return i + 6; }),
            6u);  // the input, three additions, two copies, three additions, the result
}

/// Adds one, and allocates from CUDA meanwhile. Like some libraries, it hides that this is refused.
class Secretive final : public Plan {
 public:
  Secretive() : Plan("test") {}
  void Run(const Execution& execution) const override {
    UnaryInto(UnaryOp::kAddScalar, execution.inputs[0], execution.outputs[0], 1);
    try {
      cuda::runtime::Free(cuda::runtime::Malloc(16));
    } catch (const cuda::Error&) {
    }
  }
};

TEST_F(CaptureTest, WhatSpoilsACaptureIsFoundAndQueuedBetween) {
  const PlanPtr secretive = std::make_shared<Secretive>();
  const auto graph = GraphOf(
      [&](const Tensor& x) {
        Tensor y = Unary(UnaryOp::kAddScalar, Unary(UnaryOp::kAddScalar, x, 1), 1);
        const Tensor z(y.shape(), y.device(), y.data_type());
        gpu_->Exec("Secretive", secretive, {&y, 1}, {&z, 1});
        return std::vector<Tensor>{Unary(UnaryOp::kMulScalar, Unary(UnaryOp::kAddScalar, z, 1), 2)};
      },
      Full({4}, 1, gpu_));
  EXPECT_EQ(LastQueued(*graph, [](int i) { return 2 * (i + 4); }),
            5u);  // the input, two additions, Secretive's, two operations, the result
  EXPECT_NE(graph->ToString().find("queued by itself: Secretive: it cannot be captured"),
            std::string::npos)
      << graph->ToString();
}

TEST_F(CaptureTest, AnErrorOfAnOperationIsRaisedAllTheSame) {
  class Failing final : public Plan {
   public:
    Failing() : Plan("test") {}
    void Run(const Execution&) const override {
      // It runs when it is recorded, and in the first replay.
      if (++runs > 2) throw std::runtime_error("no more");
    }
    mutable int runs = 0;
  };
  const PlanPtr failing = std::make_shared<Failing>();
  const auto graph = GraphOf(
      [&](const Tensor& x) {
        const Tensor y = Unary(UnaryOp::kAddScalar, Unary(UnaryOp::kAddScalar, x, 1), 1);
        gpu_->Exec("Failing", failing, {&y, 1}, {&y, 1});
        return std::vector<Tensor>{y};
      },
      Full({4}, 1, gpu_));
  const Tensor x = Full({4}, 1, gpu_);
  ASSERT_TRUE(graph->Start({x}));
  graph->Run(0);
  graph->Finish();
  ASSERT_TRUE(graph->Start({x}));
  EXPECT_ERROR(std::runtime_error, "no more", graph->Run(0));  // captured, then by itself
}

TEST_F(CaptureTest, ImplementationsAreTimedWithoutTheHost) {
  // Counts its runs on the GPU, and how often it is queued on the host.
  class Counting final : public Plan {
   public:
    Counting() : Plan("test") {}
    void Run(const Execution& execution) const override {
      ++queued;
      UnaryInto(UnaryOp::kAddScalar, ran, ran, 1);
      UnaryInto(UnaryOp::kAddScalar, execution.inputs[0], execution.outputs[0], 1);
    }
    const Tensor ran = Full({1}, 0, Gpu());
    mutable int queued = 0;
  };
  const Counting plan;
  const MeasuredTensor four{.shape = {4}, .dtype = kFloat32};
  const double ms = Stopwatch(gpu_, {.inputs = {four}, .outputs = {four}}).Time(plan);
  EXPECT_GT(ms, 0);
  EXPECT_GT(Values(plan.ran)[0], plan.queued);
}

}  // namespace
}  // namespace singa::test
