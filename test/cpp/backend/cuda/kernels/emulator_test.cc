// The emulator finds errors in kernels.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cuda/runtime/launch.h"
#include "emulated_gpu/queue.h"

namespace singa::cuda {

// The stream of the CPU, on which these tests run: null, so kernels run at once.
Stream StreamOf(const Device&) { return nullptr; }

namespace {

using emulated::Order;
using emulated::SetOrder;

constexpr unsigned kAll = 0xffffffffu;

std::string ErrorOf(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

__global__ void Reverse(int* data) {
  SINGA_SHARED(int, 128, copy);
  copy[threadIdx.x] = data[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  data[blockIdx.x * 128 + threadIdx.x] = copy[127 - threadIdx.x];
}

__global__ void ReverseWithoutBarrier(int* data) {
  SINGA_SHARED(int, 128, copy);
  copy[threadIdx.x] = data[threadIdx.x];
  data[threadIdx.x] = copy[127 - threadIdx.x];
}

__global__ void SumWarps(const int* in, int* out) {
  int sum = in[threadIdx.x];
  for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(kAll, sum, bits);
  int below = in[threadIdx.x];
  for (unsigned distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(kAll, below, distance);
    if (threadIdx.x % 32 >= distance) below += other;
  }
  out[threadIdx.x] = sum * 1000 + below;
}

__global__ void Early() {
  if (threadIdx.x == 5) return;
  __syncthreads();
}

__global__ void HalfWarp() {
  if (threadIdx.x % 32 < 16) __syncwarp();
}

__global__ void Outside() {
  SINGA_SHARED(float, 32, values);
  values[threadIdx.x + 1] = 0;
}

TEST(CudaEmulator, RunsKernels) {
  for (const Order order : {Order::kForward, Order::kReversed, Order::kShuffled}) {
    SetOrder(order);
    std::vector<int> data(256), sums(96);
    std::iota(data.begin(), data.end(), 0);
    Launch(Reverse, 2, 128, nullptr, data.data());
    for (int i = 0; i < 256; ++i) EXPECT_EQ(data[i], i / 128 * 128 + 127 - i % 128);
    std::iota(data.begin(), data.end(), 0);
    Launch(SumWarps, 1, 96, nullptr, data.data(), sums.data());
    for (int i = 0; i < 96; ++i) {
      const int first = i / 32 * 32, lane = i % 32;
      EXPECT_EQ(sums[i], (32 * first + 496) * 1000 + (lane + 1) * first + lane * (lane + 1) / 2);
    }
  }
  SetOrder(Order::kForward);
}

TEST(CudaEmulator, AMissingBarrierShows) {
  std::vector<std::vector<int>> results;
  for (const Order order : {Order::kForward, Order::kReversed}) {
    SetOrder(order);
    std::vector<int> data(128);
    std::iota(data.begin(), data.end(), 0);
    Launch(ReverseWithoutBarrier, 1, 128, nullptr, data.data());
    results.push_back(data);
  }
  SetOrder(Order::kForward);
  EXPECT_NE(results[0], results[1]);
}

TEST(CudaEmulator, ErrorsSayWhatIsWrong) {
  const auto expect = [](const std::function<void()>& fn, const std::string& part) {
    EXPECT_NE(ErrorOf(fn).find(part), std::string::npos) << ErrorOf(fn);
  };
  expect([] { Launch(Early, 1, 64, nullptr); }, "__syncthreads is not reached by all");
  expect([] { Launch(HalfWarp, 1, 64, nullptr); }, "not reached by all lanes");
  expect([] { Launch(Outside, 1, 32, nullptr); }, "outside its array");
  expect([] { Launch(Early, dim3(1u << 31), 64, nullptr); }, "no such grid");
  expect([] { Launch(Early, dim3(1, 65536), 64, nullptr); }, "no such grid");
  std::vector<int> data(128);
  expect([&] { LaunchIndependent(Reverse, 1, 128, nullptr, data.data()); }, "independent");
  // The emulator still works after errors.
  Launch(Reverse, 1, 128, nullptr, data.data());
}

/// What runs, in order, when somebody waits for the first of two streams. Work 4 on the first
/// stream waits for work 2 on the second.
std::vector<int> RunsOfTwoStreams(emulated::StreamOrder order, unsigned seed) {
  emulated::SetStreamOrder(order, seed);
  std::vector<int> runs;
  const Stream first = runtime::NewStream(), second = runtime::NewStream();
  const Event event = runtime::NewEvent();
  const auto queue = [&](Stream stream, int number) {
    emulated::Enqueue(stream, [&runs, number] { runs.push_back(number); });
  };
  queue(first, 1);
  queue(second, 2);
  runtime::Record(event, second);
  queue(second, 3);
  runtime::QueueWait(event, first);
  runtime::Record(event, first);  // the wait is for the earlier record
  queue(first, 4);
  queue(second, 5);
  runtime::Synchronize(first);
  std::vector<int> seen = runs;
  runtime::DeleteEvent(event);
  runtime::DeleteStream(second);
  runtime::DeleteStream(first);
  emulated::SetStreamOrder(emulated::StreamOrder::kLate);
  return seen;
}

TEST(CudaEmulator, PlaysOrdersOfStreams) {
  using enum emulated::StreamOrder;
  EXPECT_EQ(RunsOfTwoStreams(kLate, 0), (std::vector{1, 2, 4}));
  EXPECT_EQ(RunsOfTwoStreams(kEarly, 0), (std::vector{2, 3, 5, 1, 4}));
  std::set<std::vector<int>> orders;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<int> runs = RunsOfTwoStreams(kShuffled, seed);
    const auto place = [&](int number) { return std::find(runs.begin(), runs.end(), number); };
    EXPECT_LT(place(1), place(4));
    EXPECT_LT(place(2), place(4));
    EXPECT_LT(place(2), place(3));
    orders.insert(runs);
  }
  EXPECT_GT(orders.size(), 5u);
}

TEST(CudaEmulator, AQueueHoldsSoMuch) {
  const Stream stream = runtime::NewStream();
  int runs = 0;
  const auto most = static_cast<int>(emulated::kMostWaiting);
  for (int i = 0; i < most; ++i) emulated::Enqueue(stream, [&runs] { ++runs; });
  EXPECT_EQ(runs, 0);
  emulated::Enqueue(stream, [&runs] { ++runs; });
  EXPECT_EQ(runs, most / 2 + 1);
  EXPECT_EQ(emulated::Waiting(stream), emulated::kMostWaiting / 2);
  runtime::Synchronize(stream);
  EXPECT_EQ(runs, most + 1);
  runtime::DeleteStream(stream);
}

}  // namespace
}  // namespace singa::cuda
