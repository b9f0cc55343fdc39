// The emulator finds invalid memory accesses of a kernel's threads. The kernels here are compiled
// like those of the backend (test/cpp/CMakeLists.txt).

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/runtime/launch.h"

namespace singa::cuda {
namespace {

using emulated::Order;

constexpr unsigned kAll = 0xffffffffu;
constexpr int kThreads = 128;

class CudaAccesses : public testing::Test {
 protected:
  void SetUp() override {
    if (!emulated::Watch(true)) GTEST_SKIP() << "this build's kernels do not tell their accesses";
  }
  void TearDown() override {
    emulated::Watch(false);
    emulated::SetOrder(Order::kForward);
  }

  /// The outcome must be the same for every order of the threads.
  void Expect(const std::function<void()>& launch, const std::string& part) {
    for (const Order order : {Order::kForward, Order::kReversed, Order::kShuffled}) {
      emulated::SetOrder(order);
      std::string error;
      try {
        launch();
      } catch (const std::logic_error& e) {
        error = e.what();
      }
      if (part.empty()) {
        EXPECT_EQ(error, "");
      } else {
        EXPECT_NE(error.find(part), std::string::npos) << error;
      }
    }
  }

  std::vector<int> data_ = std::vector<int>(2 * kThreads);
};

__global__ void CopyVectors(const float* from, float* to) {
  StoreVector(to + threadIdx.x * 4, LoadVector(from + threadIdx.x * 4));
}

__global__ void SharedDouble(int first) {
  SINGA_SHARED(float, 8, values);
  *reinterpret_cast<double*>(&values[static_cast<size_t>(first)]) = 1;
}

__global__ void Half(const char* from, char* to) {
  *reinterpret_cast<uint16_t*>(to) = *reinterpret_cast<const uint16_t*>(from);
}

TEST_F(CudaAccesses, AnAddressIsAMultipleOfTheSize) {
  alignas(16) float memory[24] = {};
  float *const from = memory, *const to = memory + 12;
  Expect([&] { LaunchIndependent(CopyVectors, 1, 2, nullptr, from, to); }, "");
  for (const int offset : {1, 2, 3}) {
    Expect([&] { LaunchIndependent(CopyVectors, 1, 2, nullptr, from + offset, to); },
           "16 bytes at an address that is no multiple of 16");
    Expect([&] { Launch(CopyVectors, 1, 2, nullptr, from, to + offset); },
           "16 bytes at an address that is no multiple of 16");
  }
  Expect([] { Launch(SharedDouble, 1, 1, nullptr, 2); }, "");
  Expect([] { Launch(SharedDouble, 1, 1, nullptr, 3); }, "8 bytes at an address");
  const auto bytes = reinterpret_cast<char*>(memory);
  Expect([&] { LaunchIndependent(Half, 1, 1, nullptr, bytes, bytes + 2); }, "");
  Expect([&] { LaunchIndependent(Half, 1, 1, nullptr, bytes + 1, bytes + 2); }, "2 bytes at an ad");
}

template <bool kBarrier>
__global__ void Reverse(int* data) {
  SINGA_SHARED(int, kThreads, copy);
  copy[threadIdx.x] = data[threadIdx.x];
  if (kBarrier) __syncthreads();
  data[threadIdx.x] = copy[kThreads - 1 - threadIdx.x];
}

/// All threads read one element; then the thread `writer` of each block writes it.
template <bool kBarrier>
__global__ void ReadThenWrite(int* data, unsigned writer) {
  SINGA_SHARED(int, 1, place);
  if (threadIdx.x == 0) place[0] = 1;
  __syncthreads();
  data[threadIdx.x] = place[0];
  if (kBarrier) __syncthreads();
  if (threadIdx.x == writer) place[0] = 2;
}

TEST_F(CudaAccesses, ABarrierOfTheBlockOrders) {
  Expect([&] { Launch(Reverse<true>, 1, kThreads, nullptr, data_.data()); }, "");
  Expect([&] { Launch(Reverse<false>, 1, kThreads, nullptr, data_.data()); }, "no barrier between");
  for (const unsigned writer : {0u, 1u, 127u}) {
    Expect([&] { Launch(ReadThenWrite<true>, 1, kThreads, nullptr, data_.data(), writer); }, "");
    Expect([&] { Launch(ReadThenWrite<false>, 1, kThreads, nullptr, data_.data(), writer); },
           "a race");
  }
}

/// Each thread reads what thread `threadIdx.x ^ distance` wrote.
__global__ void Pass(int* data, unsigned distance, bool barrier) {
  SINGA_SHARED(int, kThreads, place);
  place[threadIdx.x] = 1;
  if (barrier) {
    __syncwarp();
  } else {
    __shfl_xor_sync(kAll, 1, 1);  // exchanges values, but does not order memory accesses
  }
  data[threadIdx.x] = place[threadIdx.x ^ distance];
}

TEST_F(CudaAccesses, ABarrierOfAWarpOrdersItsLanes) {
  Expect([&] { Launch(Pass, 1, kThreads, nullptr, data_.data(), 1u, true); }, "");
  Expect([&] { Launch(Pass, 1, kThreads, nullptr, data_.data(), 32u, true); }, "a race");
  Expect([&] { Launch(Pass, 1, kThreads, nullptr, data_.data(), 1u, false); }, "a race");
}

__global__ void WriteSame(int* data) { data[threadIdx.x] = 1; }
__global__ void StoreAlike(int* data) { StoreSame(data + threadIdx.x, 1); }
__global__ void Shift(int* data) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > 0) data[i - 1] = data[i];
}
__global__ void Count(int* data, bool read) {
  atomicAdd(data, 1);
  if (read && threadIdx.x == 3) data[1] = data[0];
}
__global__ void Bytes(uint8_t* data) { data[blockIdx.x * blockDim.x + threadIdx.x] = 1; }

TEST_F(CudaAccesses, NothingOrdersBlocks) {
  int* data = data_.data();
  Expect([&] { Launch(WriteSame, 2, 32, nullptr, data); }, "of block");
  Expect([&] { LaunchIndependent(WriteSame, 2, 32, nullptr, data); }, "a race");
  Expect([&] { LaunchIndependent(StoreAlike, 2, 32, nullptr, data); }, "");
  Expect([&] { LaunchIndependent(Shift, 2, 32, nullptr, data); }, "a race");
  Expect([&] { LaunchIndependent(Shift, 64, 1, nullptr, data); }, "a race");
  Expect([&] { LaunchIndependent(Count, 2, 32, nullptr, data, false); }, "");
  Expect([&] { LaunchIndependent(Count, 2, 32, nullptr, data, true); }, "a race");
  // Neighbouring bytes do not conflict, nor do successive launches.
  const auto bytes = reinterpret_cast<uint8_t*>(data);
  Expect([&] { LaunchIndependent(Bytes, 2, 32, nullptr, bytes); }, "");
  data_[0] = 0;
  LaunchIndependent(Count, 2, 32, nullptr, data, false);
  EXPECT_EQ(data_[0], 64);
}

}  // namespace
}  // namespace singa::cuda
