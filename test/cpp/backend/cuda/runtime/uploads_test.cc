// Copies from the host overlap with queued work. The emulated GPU runs streams in all permitted
// orders.

#include <thread>

#include "backend/cuda/runtime/staging.h"
#include "backend/cuda/test_gpu.h"
#include "emulated_gpu/queue.h"
#include "singa/core/graph.h"
#include "singa/operation/elementwise.h"
#include "support.h"

namespace singa::test {
namespace {

using cuda::emulated::SetStreamOrder;
using cuda::emulated::StreamOrder;

class UploadsTest : public ::testing::Test {
 protected:
  void SetUp() override { gpu_->Sync(); }
  void TearDown() override { SetStreamOrder(StreamOrder::kLate); }

  template <class Fn>
  void InEachOrder(const Fn& fn) const {
    for (unsigned seed = 0; seed < 12; ++seed) {
      SCOPED_TRACE("order " + std::to_string(seed));
      SetStreamOrder(seed == 0   ? StreamOrder::kLate
                     : seed == 1 ? StreamOrder::kEarly
                                 : StreamOrder::kShuffled,
                     seed);
      fn();
      gpu_->Sync();
    }
  }

  Tensor Sent(const Shape& shape, double value) const { return Full(shape, value).ToDevice(gpu_); }
  /// Work on the device's own stream that has not run yet.
  uint64_t Waiting() const { return cuda::emulated::Waiting(cuda::StreamOf(*gpu_)); }

  const DevicePtr gpu_ = Gpu();
};

Vector All(const Tensor& t, double value) { return Vector(static_cast<size_t>(t.size()), value); }

/// More than fits in pinned memory, so that the host must wait for part of it.
constexpr int64_t kMany = 2 * cuda::Staging::kBytes / sizeof(float) + 1;

TEST_F(UploadsTest, WaitForNothingThatWasQueued) {
  const Tensor x = Full({4}, 1, gpu_), y = Full({4}, 0, gpu_);
  gpu_->Sync();
  UnaryInto(UnaryOp::kAddScalar, x, y, 1);
  EXPECT_EQ(Waiting(), 1u);
  Tensor host = Full({kMany}, 3);
  const Tensor sent = host.ToDevice(gpu_);
  EXPECT_EQ(Waiting(), 1u);
  host.Fill(0);  // it has been read
  const Tensor z = Unary(UnaryOp::kAddScalar, sent, 1);
  EXPECT_EQ(Waiting(), 3u);  // includes waiting for the copy
  EXPECT_EQ(Values(z), All(z, 4));
  EXPECT_EQ(Values(y), All(y, 2));
}

TEST_F(UploadsTest, ArriveBeforeTheirFirstUse) {
  InEachOrder([&] {
    std::vector<Tensor> results;
    Tensor next = Sent({kMany}, 0);
    for (int i = 0; i < 3; ++i) {
      const Tensor x = next;
      next = Sent({kMany}, i + 1);  // before x is used
      results.push_back(Unary(UnaryOp::kAddScalar, x.SliceAxis(0, kMany - 9, kMany), 10));
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Values(results[i]), All(results[i], i + 10));
    const Tensor column = Sent({3, 5}, 7).SliceAxis(1, 1, 2);
    EXPECT_EQ(Values(column), All(column, 7));
    EXPECT_EQ(Values(Sent({0, 3}, 1)).size(), 0u);
  });
}

TEST_F(UploadsTest, ATensorInUseIsOverwrittenAfterIt) {
  InEachOrder([&] {
    Tensor x = Full({1000}, 1, gpu_);
    const Tensor host = Full({1000}, 5);
    const Tensor before = Unary(UnaryOp::kAddScalar, x, 1);
    const uint64_t waiting = Waiting();
    x.CopyFrom(host);
    EXPECT_GT(Waiting(), waiting);  // the host has not waited
    const Tensor after = Unary(UnaryOp::kAddScalar, x, 1);
    x.SliceAxis(0, 0, 1000, 2).CopyFrom(Full({500}, 8, nullptr, kInt32));
    EXPECT_EQ(Values(before), All(before, 2));
    EXPECT_EQ(Values(after), All(after, 6));
    EXPECT_EQ(Values(x.SliceAxis(0, 0, 1000, 2)), Vector(500, 8));
    EXPECT_EQ(Values(x.SliceAxis(0, 1, 1000, 2)), Vector(500, 5));
  });
}

TEST_F(UploadsTest, MemoryIsUsedAgainOnlyWhenWhatReadsItHasRun) {
  constexpr int64_t kCount = 5000;
  gpu_->EmptyCache();
  Tensor first = Sent({kCount}, 1);
  const void* place = first.raw_data();
  const Tensor result = Unary(UnaryOp::kAddScalar, first, 1);
  first = {};
  const Tensor second = Sent({kCount}, 2);
  EXPECT_NE(second.raw_data(), place);
  EXPECT_EQ(Values(result), All(result, 2));
  const Tensor third = Sent({kCount}, 3);
  EXPECT_EQ(third.raw_data(), place);

  InEachOrder([&] {
    std::vector<Tensor> results;
    for (int i = 0; i < 30; ++i) {
      Sent({kCount}, -1);  // unused
      results.push_back(Unary(UnaryOp::kAddScalar, Sent({kCount}, i), 1));
      if (i % 7 == 6) Values(results[static_cast<size_t>(i - 3)]);
    }
    for (int i = 0; i < 30; ++i) ASSERT_EQ(Values(results[i]), All(results[i], i + 1)) << i;
  });
  const size_t reserved = gpu_->memory().reserved;
  for (int i = 0; i < 30; ++i) Values(Unary(UnaryOp::kAddScalar, Sent({kCount}, i), 1));
  EXPECT_EQ(gpu_->memory().reserved, reserved);
}

TEST_F(UploadsTest, AnotherThreadSendsMeanwhile) {
  InEachOrder([&] {
    std::vector<Tensor> sent(20), results;
    std::thread sender([&] {
      for (size_t i = 0; i < sent.size(); ++i) sent[i] = Sent({5000}, static_cast<double>(i));
    });
    for (int i = 0; i < 20; ++i) results.push_back(Unary(UnaryOp::kAddScalar, Sent({5000}, i), 1));
    sender.join();
    for (size_t i = 0; i < sent.size(); ++i) {
      EXPECT_EQ(Values(sent[i]), All(sent[i], static_cast<double>(i)));
      EXPECT_EQ(Values(results[i]), All(results[i], static_cast<double>(i) + 1));
    }
  });
}

TEST_F(UploadsTest, AReplayedStepGetsItsOwnBatch) {
  const auto step = [](const Tensor& x) {
    Tensor y = x;
    for (int i = 0; i < 3; ++i) y = Unary(UnaryOp::kMulScalar, y, 2);
    return std::vector<Tensor>{y};
  };
  InEachOrder([&] {
    const auto graph = GraphOf(step, Full({3000}, 1, gpu_));
    std::vector<Tensor> results;
    Tensor next = Sent({3000}, 0);
    for (int i = 0; i < 8; ++i) {  // the first replay queues, the second captures
      const Tensor x = next;
      next = Sent({3000}, i + 1);
      ASSERT_TRUE(graph->Start({x}));
      graph->Run(0);
      results.push_back(graph->Finish()[0]);
    }
    for (int i = 0; i < 8; ++i) EXPECT_EQ(Values(results[i]), All(results[i], 8 * i)) << i;
    EXPECT_GT(graph->memory().fixed, 0u);
  });
}

TEST_F(UploadsTest, EmptyCacheAndSyncWaitForThem) {
  Tensor sent = Sent({kMany}, 1);
  gpu_->Sync();
  sent = {};
  sent = Sent({kMany}, 2);
  sent = {};
  gpu_->EmptyCache();  // its memory is inaccessible from now on
  EXPECT_EQ(Values(Sent({10}, 3)), Vector(10, 3));
}

}  // namespace
}  // namespace singa::test
