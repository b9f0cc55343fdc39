// Captured work with branches. The emulated GPU runs it in all orders that dependencies permit.

#include "core/graph/stream_schedule.h"

#include <optional>

#include "backend/cuda/test_gpu.h"
#include "core/graph/captured_work.h"
#include "core/graph/recorded_step.h"
#include "emulated_gpu/queue.h"
#include "singa/core/graph.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/dropout.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

using cuda::emulated::SetStreamOrder;
using cuda::emulated::StreamOrder;
using Edge = std::pair<size_t, size_t>;  // a step, and one on which it depends

/// The GPU's Capturer with several branches, regardless of the environment. It can leave out one
/// edge.
class Branching final : public Capturer {
 public:
  Branching(const DevicePtr& gpu, size_t branches, std::optional<Edge> without = {})
      : gpu_(dynamic_cast<Capturer&>(*gpu)), branches_(branches), without_(without) {}

  bool captures() const override { return gpu_.captures(); }
  std::unique_ptr<CapturedWork> Capture(const std::function<void()>& queue) override {
    edges.clear();
    steps_ = 0;
    return gpu_.Capture(queue);
  }
  void CaptureLive(const Scalars& scalars, const std::function<void()>& queue) override {
    gpu_.CaptureLive(scalars, queue);
  }
  size_t branches() const override { return branches_; }
  void CaptureAfter(std::span<const size_t> calls) override {
    std::vector<size_t> kept;
    for (size_t call : calls) {
      edges.emplace_back(steps_, call);
      if (edges.back() != without_) kept.push_back(call);
    }
    ++steps_;
    gpu_.CaptureAfter(kept);
  }

  std::vector<Edge> edges;

 private:
  Capturer& gpu_;
  size_t branches_;
  std::optional<Edge> without_;
  size_t steps_ = 0;
};

class BranchesTest : public ::testing::Test {
 protected:
  void TearDown() override { SetStreamOrder(StreamOrder::kLate); }
  const DevicePtr gpu_ = Gpu();
};

TEST_F(BranchesTest, WhatIsNotWaitedForShows) {
  auto& capturer = dynamic_cast<Capturer&>(*gpu_);
  for (const bool waits : {true, false}) {
    const Tensor x = Full({4}, 1, gpu_), y = Full({4}, 0, gpu_), z = Full({4}, 0, gpu_);
    const auto work = capturer.Capture([&] {
      capturer.CaptureAfter({});
      UnaryInto(UnaryOp::kMulScalar, x, y, 2);
      const size_t first[] = {0};
      capturer.CaptureAfter(waits ? std::span<const size_t>(first) : std::span<const size_t>());
      UnaryInto(UnaryOp::kAddScalar, y, z, 1);
    });
    work->Launch();
    EXPECT_EQ(Values(z), Vector(4, waits ? 3 : 1));
    SetStreamOrder(StreamOrder::kEarly);
    work->Launch();
    EXPECT_EQ(Values(z), Vector(4, 3));
    SetStreamOrder(StreamOrder::kLate);
  }
}

TEST_F(BranchesTest, AStepThatQueuesNothingPassesOnWhatItWaitsFor) {
  auto& capturer = dynamic_cast<Capturer&>(*gpu_);
  const Tensor x = Full({4}, 1, gpu_), y = Full({4}, 0, gpu_);
  const size_t first[] = {0}, second[] = {1};
  const auto work = capturer.Capture([&] {
    capturer.CaptureAfter({});
    UnaryInto(UnaryOp::kMulScalar, x, x, 2);
    capturer.CaptureAfter(first);
    capturer.CaptureAfter(second);
    UnaryInto(UnaryOp::kAddScalar, x, y, 1);
  });
  work->Launch();
  EXPECT_EQ(Values(y), Vector(4, 3));
}

/// Random operations on random tensors, some of which update persistent ones. The output depends on
/// every intermediate result.
class Network {
 public:
  explicit Network(uint64_t seed) : seed_(seed) {
    for (int i = 0; i < kSteps; ++i) filters_.push_back(Full({4, 4, 3, 3}, 1, Gpu()));
  }

  Tensor Run(const Tensor& x) const {
    Random random(seed_);
    std::vector<Tensor> made = {x};
    std::vector<bool> used = {true};
    const auto any = [&] {
      const auto i = static_cast<size_t>(random.Int(0, static_cast<int64_t>(made.size()) - 1));
      used[i] = true;
      return made[i];
    };
    for (const Tensor& filters : filters_) {
      made.push_back(Next(random, any, filters));
      used.push_back(false);
    }
    Tensor sum = made.back();
    for (size_t i = 0; i + 1 < made.size(); ++i)
      if (!used[i]) sum = Binary(BinaryOp::kAdd, sum, made[i]);
    return sum;
  }

  const std::vector<Tensor>& filters() const { return filters_; }
  std::vector<Vector> States() const { return {Values(mean_), Values(variance_)}; }

 private:
  static constexpr int kSteps = 12;

  template <class Any>
  Tensor Next(Random& random, const Any& any, const Tensor& filters) const {
    switch (random.Int(0, 6)) {
      case 0:
        return Unary(UnaryOp::kTanh, any());
      case 1:
        return Unary(UnaryOp::kAddScalar, any(), 0.5);
      case 2:
        return Binary(BinaryOp::kAdd, any(), any());
      case 3:
        return DropoutForward(any(), 0.25)[0];
      case 4: {
        const Tensor x = any();
        const ConvHandle handle(x, {3, 3}, {1, 1}, {1, 1}, 4, 4, false);
        return ConvForward(x, filters, Tensor(), handle);
      }
      case 5: {
        const Tensor x = any();
        const BatchNormHandle handle(0.9, x);
        return BatchNormForwardTraining(handle, x, Tensor(), Tensor(), mean_, variance_)[0];
      }
      default: {
        const Tensor x = any();
        UnaryInto(UnaryOp::kAddScalar, variance_, variance_, 0.5);
        return BatchNormForwardInference(BatchNormHandle(0.9, x), x, Tensor(), Tensor(), mean_,
                                         variance_);
      }
    }
  }

  uint64_t seed_;
  std::vector<Tensor> filters_;
  Tensor mean_ = Full({4}, 0, Gpu()), variance_ = Full({4}, 1, Gpu());
};

/// A network that is executed eagerly, and its twin, which is captured.
class Twins {
 public:
  Twins(uint64_t seed, Branching& branching)
      : x_(Full({2, 4, 3, 3}, 0, Gpu())), executed_(seed), captured_(seed) {
    Fill();
    Gpu()->SetRandSeed(7);
    recording_->Start({x_});
    y_ = captured_.Run(x_);
    recording_->Finish({y_});
    Gpu()->SetRandSeed(7);
    executed_.Run(x_);
    nodes_.emplace(*Gpu(), branching, recording_->step().nodes());
  }

  /// Runs both on new inputs and filters. Returns whether results and persistent tensors are the
  /// same.
  bool Agree() {
    Fill();
    Gpu()->SetRandSeed(7);
    const Tensor want = executed_.Run(x_);
    nodes_->Queue(0, recording_->step().nodes().size(), recording_->step().arena()->data(),
                  recording_->step().segments()[0].memory.workspaces);
    return Values(y_) == Values(want) && captured_.States() == executed_.States();
  }

  const std::vector<Node>& nodes() const { return recording_->step().nodes(); }
  const CapturedNodes& captured() const { return *nodes_; }
  /// Whether these edges keep nodes in order that share bytes of which one writes.
  bool AreKeptApart(const std::vector<Edge>& edges) const {
    std::vector<std::vector<bool>> comes_after(nodes().size(), std::vector<bool>(nodes().size()));
    for (const auto& [n, d] : edges) {  // sorted by the first node
      comes_after[n][d] = true;
      for (size_t i = 0; i < d; ++i)
        if (comes_after[d][i]) comes_after[n][i] = true;
    }
    for (size_t n = 0; n < nodes().size(); ++n)
      for (size_t d = 0; d < n; ++d)
        if (!comes_after[n][d] && Share(n, d)) return false;
    return true;
  }

 private:
  bool Share(size_t one, size_t other) const {
    const auto uses = [&](size_t n) {
      std::vector<ByteUse> all = {{recording_->step().arena()->data() +
                                       recording_->step().segments()[0].memory.workspaces[n],
                                   nodes()[n].plan->workspace_bytes(), true}};
      for (const auto* tensors : {&nodes()[n].inputs, &nodes()[n].outputs})
        for (const Tensor& t : *tensors)
          if (!t.empty())
            all.push_back({t.block()->data(), t.block()->size(), tensors == &nodes()[n].outputs});
      return all;
    };
    for (const ByteUse& a : uses(one))
      for (const ByteUse& b : uses(other)) {
        const char *p = static_cast<const char*>(a.data), *q = static_cast<const char*>(b.data);
        if ((a.writes || b.writes) && std::max(p, q) < std::min(p + a.bytes, q + b.bytes))
          return true;
      }
    return false;
  }

  void Fill() {
    Fill({x_});
    for (size_t i = 0; i < executed_.filters().size(); ++i)
      Fill({executed_.filters()[i], captured_.filters()[i]});
  }
  /// Fills all tensors with the same values.
  void Fill(const std::vector<Tensor>& tensors) {
    std::vector<float> values(static_cast<size_t>(tensors[0].size()));
    for (float& v : values) v = static_cast<float>(random_.Real());
    for (Tensor t : tensors) t.CopyFromHost(values.data(), static_cast<size_t>(t.bytes()));
  }

  Random random_{1};
  Tensor x_, y_;
  Network executed_, captured_;
  const RecordingPtr recording_ = std::make_shared<Recording>(Gpu(), nullptr);
  std::optional<CapturedNodes> nodes_;
};

void PlayOrder(unsigned number) {
  SetStreamOrder(number == 0   ? StreamOrder::kLate
                 : number == 1 ? StreamOrder::kEarly
                               : StreamOrder::kShuffled,
                 number);
}

TEST_F(BranchesTest, InEachOrderTheyGiveTheBitsOfExecutedOperations) {
  size_t most = 0;
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const size_t branches = seed % 4 + 1;
    Branching branching(gpu_, branches);
    Twins twins(seed, branching);
    for (unsigned order = 0; order < 8; ++order) {
      PlayOrder(order);
      EXPECT_TRUE(twins.Agree()) << "network " << seed << ", order " << order;
    }
    const CapturedNodes& captured = twins.captured();
    EXPECT_LE(captured.branches(), branches);
    EXPECT_EQ(captured.longest() == twins.nodes().size(), captured.branches() == 1);
    most = std::max(most, captured.branches());
  }
  EXPECT_GE(most, 3u);
}

TEST_F(BranchesTest, ADependencyThatIsLeftOutShows) {
  int needed = 0, shown = 0;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    Branching whole(gpu_, 3);
    Twins wholly(seed, whole);
    EXPECT_TRUE(wholly.Agree());
    EXPECT_TRUE(wholly.AreKeptApart(whole.edges));
    for (const Edge& edge : whole.edges) {
      Branching branching(gpu_, 3, edge);
      Twins twins(seed, branching);
      std::vector<Edge> rest = whole.edges;
      std::erase(rest, edge);
      // Other edges only order the steps of a branch.
      const bool is_needed = !twins.AreKeptApart(rest);
      bool agree = true;
      for (unsigned order = 0; order < (is_needed ? 40 : 8) && agree; ++order) {
        PlayOrder(order);
        agree = twins.Agree();
      }
      EXPECT_TRUE(agree || is_needed)
          << "network " << seed << ": " << edge.first << " after " << edge.second;
      needed += is_needed;
      shown += !agree;
    }
  }
  EXPECT_GT(needed, 50);
  // Without some edges, a step happens to read the same values.
  EXPECT_GT(shown, 0.9 * needed);
}

}  // namespace
}  // namespace singa::test
