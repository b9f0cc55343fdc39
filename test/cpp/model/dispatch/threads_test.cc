// Several threads compute at the same time and get the same bits as one thread alone, whatever
// happens to the plan cache and the allocator. With the thread sanitizer (preset tsan) these tests
// find races between operations.

#include <atomic>
#include <thread>

#include "singa/core/device.h"
#include "singa/operation/batchnorm.h"
#include "singa/operation/conv.h"
#include "singa/operation/elementwise.h"
#include "singa/operation/linalg.h"
#include "singa/operation/pooling.h"
#include "singa/operation/softmax.h"
#include "support.h"

namespace singa::test {
namespace {

constexpr int kThreads = 8;

/// A small network whose parameters all threads share.
struct Network {
  explicit Network(uint64_t seed)
      : random(seed),
        w1(RandomTensor(random, {9, 3, 3, 3})),
        b1(RandomTensor(random, {9})),
        scale(RandomTensor(random, {9}, kFloat32, 0.5, 1.5)),
        bias(RandomTensor(random, {9})),
        mean(RandomTensor(random, {9})),
        var(RandomTensor(random, {9}, kFloat32, 0.5, 1.5)),
        w2(RandomTensor(random, {9, 5})),
        b2(RandomTensor(random, {5})) {}

  Tensor Infer(const Tensor& x) const {
    const ConvHandle conv(x, {3, 3}, {1, 1}, {1, 1}, 3, 9);
    Tensor y = ConvForward(x, w1, b1, conv);
    y = BatchNormForwardInference(BatchNormHandle(0.1, y), y, scale, bias, mean, var);
    y = Unary(UnaryOp::kRelu, y);
    y = PoolingForward(PoolingHandle(y, {2, 2}, {2, 2}, {0, 0}), y, false)[0];
    y = GlobalAveragePoolForward(y).Reshape({x.shape()[0], 9});
    return Softmax(LinearForward(y, w2, b2));
  }

  /// The gradients of W and x of the convolution, from a training forward.
  Vector Train(const Tensor& x) const {
    const ConvHandle conv(x, {3, 3}, {1, 1}, {1, 1}, 3, 9);
    const Tensor y = ConvForward(x, w1, b1, conv);
    const BatchNormHandle norm(0.1, y);
    const auto normed = BatchNormForwardTraining(norm, y, scale, bias, {}, {});
    const auto dy = BatchNormBackward(norm, normed[0], y, scale, normed[1], normed[2]);
    const auto gradients = ConvBackward(dy[0], x, w1, conv, true, true, true);
    Vector all = Values(gradients[0]);
    for (int i : {1, 2})
      for (double value : Values(gradients[i])) all.push_back(value);
    return all;
  }

  Random random;
  Tensor w1, b1, scale, bias, mean, var, w2, b2;
};

/// Runs `work(thread)` on kThreads threads. An exception in a thread is a failure.
template <class Work>
void OnThreads(const Work& work) {
  std::vector<std::thread> threads;
  std::vector<std::string> errors(kThreads);
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      try {
        work(t);
      } catch (const std::exception& error) {
        errors[t] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

/// Inputs of different sizes, and so of different signatures.
std::vector<Tensor> Inputs(Random& random) {
  std::vector<Tensor> xs;
  for (int64_t i = 0; i < kThreads; ++i)
    xs.push_back(RandomTensor(random, {1 + i % 3, 3, 6 + i, 7}));
  return xs;
}

class ThreadsTest : public testing::Test {
 protected:
  void TearDown() override {
    SetPlanCacheLimit(uint64_t{256} << 20, 4096);
    ClearPlanCache();
  }
};

TEST_F(ThreadsTest, InferAsOneAlone) {
  for (const Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    Network network(1);
    const std::vector<Tensor> xs = Inputs(network.random);
    std::vector<Vector> alone;
    for (const Tensor& x : xs) alone.push_back(Values(network.Infer(x)));
    ClearPlanCache();  // so that the threads also make plans at the same time
    std::atomic<int> different{0};
    OnThreads([&](int t) {
      for (int i = 0; i < 3 * kThreads; ++i) {
        const int own =
            i % 2 ? 0 : (t + i) % kThreads;  // the same input for all, or different ones
        different += Values(network.Infer(xs[own])) != alone[own];
      }
    });
    EXPECT_EQ(different, 0);
  }
}

TEST_F(ThreadsTest, TrainAsOneAlone) {
  for (const Preference preference : kImplementations) {
    SCOPED_TRACE(PreferenceName(preference));
    PreferenceScope scope(preference);
    Network network(2);
    const std::vector<Tensor> xs = Inputs(network.random);
    std::vector<Vector> alone;
    for (const Tensor& x : xs) alone.push_back(network.Train(x));
    std::atomic<int> different{0};
    OnThreads([&](int t) {
      for (int i = 0; i < kThreads; ++i) {
        const int own = (t + i) % kThreads;
        different += network.Train(xs[own]) != alone[own];
      }
    });
    EXPECT_EQ(different, 0);
  }
}

// Plans are dropped while they run and made again all the time.
TEST_F(ThreadsTest, InferWhileTheCacheIsClearedAndLimited) {
  Network network(3);
  const std::vector<Tensor> xs = Inputs(network.random);
  std::vector<Vector> alone;
  for (const Tensor& x : xs) alone.push_back(Values(network.Infer(x)));
  std::atomic<bool> done{false};
  std::thread janitor([&] {
    for (uint64_t i = 0; !done; ++i) {
      if (i % 2) ClearPlanCache();
      SetPlanCacheLimit(0, 1 + i % 20);
      DefaultDevice()->EmptyCache();
      GetPlanCacheStats();
      DefaultDevice()->memory();
      std::this_thread::yield();
    }
  });
  std::atomic<int> different{0};
  OnThreads([&](int t) {
    for (int i = 0; i < 2 * kThreads; ++i) {
      const int own = (t + i) % kThreads;
      different += Values(network.Infer(xs[own])) != alone[own];
    }
  });
  done = true;
  janitor.join();
  EXPECT_EQ(different, 0);
}

}  // namespace
}  // namespace singa::test
