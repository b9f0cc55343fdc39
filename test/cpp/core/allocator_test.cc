#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/caching_allocator.h"
#include "singa/core/error.h"

namespace singa {
namespace {

bool UsesSystem() {
  const char* kind = std::getenv("SINGA_ALLOCATOR");
  return kind && std::strcmp(kind, "system") == 0;
}

TEST(CachingAllocator, AlignsAndNeverReturnsNull) {
  CachingAllocator allocator;
  for (size_t bytes : {size_t{0}, size_t{1}, size_t{64}, size_t{65}, size_t{4097}, size_t{131072},
                       size_t{131073}, size_t{5} << 20}) {
    void* data = allocator.Allocate(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    std::memset(data, 0x5a, bytes);
    allocator.Free(data, bytes);
  }
  EXPECT_EQ(allocator.stats().live, 0u);
}

TEST(CachingAllocator, ARepeatedStepAsksTheSystemForNothing) {
  if (UsesSystem()) GTEST_SKIP() << "SINGA_ALLOCATOR=system";
  CachingAllocator allocator;
  std::mt19937 random(1);
  std::vector<size_t> sizes(300);
  for (size_t& size : sizes) size = random() % (random() % 2 ? 3 << 20 : 2000);
  uint64_t after_first = 0;
  for (int step = 0; step < 5; ++step) {
    std::vector<void*> held;
    for (size_t size : sizes) held.push_back(allocator.Allocate(size));
    for (size_t i = sizes.size(); i-- > 0;) allocator.Free(held[i], sizes[i]);
    if (step == 0) after_first = allocator.stats().system_allocations;
  }
  EXPECT_EQ(allocator.stats().system_allocations, after_first);
  EXPECT_EQ(allocator.stats().live, 0u);
}

TEST(CachingAllocator, FreeNeighboursMerge) {
  if (UsesSystem()) GTEST_SKIP() << "SINGA_ALLOCATOR=system";
  CachingAllocator allocator;
  const size_t piece = size_t{4} << 20;
  std::vector<void*> held;
  for (int i = 0; i < 8; ++i) held.push_back(allocator.Allocate(piece));
  const size_t reserved = allocator.stats().reserved;
  for (int i : {1, 3, 5, 7, 0, 2, 4, 6}) allocator.Free(held[i], piece);
  void* whole = allocator.Allocate(8 * piece);  // fits only if the pieces are one again
  EXPECT_EQ(allocator.stats().reserved, reserved);
  allocator.Free(whole, 8 * piece);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.stats().reserved, 0u);
}

TEST(CachingAllocator, BlocksOfManyThreadsNeverOverlap) {
  CachingAllocator allocator;
  std::vector<std::thread> threads;
  std::atomic<int> damaged{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      struct Held {
        unsigned char* data;
        size_t bytes;
        unsigned char mark;
      };
      std::vector<Held> held;
      for (int i = 0; i < 3000; ++i) {
        if (held.size() > 20 || (!held.empty() && random() % 2)) {
          const size_t index = random() % held.size();
          const Held h = held[index];
          held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
          for (size_t j = 0; j < h.bytes; j += 61) damaged += h.data[j] != h.mark;
          allocator.Free(h.data, h.bytes);
        } else {
          const size_t bytes = 1 + random() % (random() % 8 ? 3000 : 400000);
          const auto mark = static_cast<unsigned char>(random());
          auto* data = static_cast<unsigned char*>(allocator.Allocate(bytes));
          std::memset(data, mark, bytes);
          held.push_back({data, bytes, mark});
        }
      }
      for (const Held& h : held) allocator.Free(h.data, h.bytes);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(allocator.stats().live, 0u);
}

TEST(CachingAllocator, RefusesMoreThanTheMachineHas) {
  CachingAllocator allocator;
  EXPECT_THROW(allocator.Allocate(size_t{1} << 50), OutOfMemory);
  void* data = allocator.Allocate(100);  // and works on
  allocator.Free(data, 100);
}

}  // namespace
}  // namespace singa
