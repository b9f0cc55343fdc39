#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/memory/caching_allocator.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa {
namespace {

bool UsesSystem() { return EnvironmentValue("SINGA_ALLOCATOR") == "system"; }

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
  void* whole = allocator.Allocate(8 * piece);  // fits only if the pieces have merged
  EXPECT_EQ(allocator.stats().reserved, reserved);
  allocator.Free(whole, 8 * piece);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.stats().reserved, 0u);
}

TEST(CachingAllocator, NoNeighbourKeepsALargeBlock) {
  if (UsesSystem()) GTEST_SKIP() << "SINGA_ALLOCATOR=system";
  CachingAllocator allocator;
  const size_t large = (size_t{33} << 20) + 1, medium = size_t{1} << 18;
  void* first = allocator.Allocate(large);
  void* second = allocator.Allocate(medium);
  allocator.Free(first, large);
  allocator.EmptyCache();
  EXPECT_LT(allocator.stats().reserved, large);
  allocator.Free(second, medium);
}

// What a live block lies beside goes back to the system, but for its own huge page.
TEST(CachingAllocator, ABlockKeepsItsOwnHugePageAlone) {
  if (UsesSystem()) GTEST_SKIP() << "SINGA_ALLOCATOR=system";
  constexpr size_t kMiB = 1 << 20, kPiece = 9 * kMiB + 4096;
  for (const unsigned live : {0u, 1u, 2u, 4u, 5u, 6u, 7u}) {  // bit i: piece i of three lives on
    CachingAllocator allocator;
    std::vector<unsigned char*> pieces;
    for (int i = 0; i < 3; ++i) {
      pieces.push_back(static_cast<unsigned char*>(allocator.Allocate(kPiece)));
      std::memset(pieces.back(), i + 1, kPiece);
    }
    EXPECT_EQ(allocator.stats().reserved, 32 * kMiB);
    for (size_t i = 0; i < 3; ++i)
      if (!(live >> i & 1)) allocator.Free(pieces[i], kPiece);
    allocator.EmptyCache();
    allocator.EmptyCache();
    size_t pages = 0;  // that a live piece touches
    for (uintptr_t page = 0; page < 16; ++page)
      for (size_t i = 0; i < 3; ++i)
        if ((live >> i & 1) && page * 2 * kMiB < (i + 1) * kPiece &&
            (page + 1) * 2 * kMiB > i * kPiece) {
          ++pages;
          break;
        }
    EXPECT_EQ(allocator.stats().reserved, pages * 2 * kMiB) << live;
    for (size_t i = 0; i < 3; ++i) {
      if (!(live >> i & 1)) continue;
      EXPECT_EQ(pieces[i][0], i + 1);
      EXPECT_EQ(pieces[i][kPiece - 1], i + 1);
    }
    // What is left can be used, and merges again.
    void* small = allocator.Allocate(256 << 10);
    std::memset(small, 9, 256 << 10);
    allocator.Free(small, 256 << 10);
    for (size_t i = 0; i < 3; ++i)
      if (live >> i & 1) allocator.Free(pieces[i], kPiece);
    allocator.EmptyCache();
    EXPECT_EQ(allocator.stats().reserved, 0u) << live;
  }
}

// Kernels of oneDNN read past the end of a tensor.
TEST(CachingAllocator, WhatLiesBehindABlockCanBeRead) {
  if (UsesSystem()) GTEST_SKIP() << "SINGA_ALLOCATOR=system";
  constexpr size_t kHuge = size_t{2} << 20;
  CachingAllocator allocator;
  auto* block = static_cast<unsigned char*>(allocator.Allocate(kHuge));
  void* next = allocator.Allocate(3 * kHuge);
  allocator.Free(next, 3 * kHuge);
  allocator.EmptyCache();
  EXPECT_EQ(allocator.stats().reserved, 2 * kHuge);
  EXPECT_EQ(block[kHuge + (64 << 10) - 1], 0);
  allocator.Free(block, kHuge);
}

/// Allocates, marks, checks and frees at random, with at most 20 blocks at a time. Returns the
/// number of its bytes that have changed.
int Churn(CachingAllocator& allocator, unsigned seed, int steps) {
  struct Held {
    unsigned char* data;
    size_t bytes;
    unsigned char mark;
  };
  std::mt19937 random(seed);
  std::vector<Held> held;
  int damaged = 0;
  const auto check = [&](const Held& h) {
    for (size_t j = 0; j < h.bytes; j += 61) damaged += h.data[j] != h.mark;
    damaged += h.data[h.bytes - 1] != h.mark;
  };
  for (int i = 0; i < steps; ++i) {
    if (held.size() > 20 || (!held.empty() && random() % 2)) {
      const size_t index = random() % held.size();
      const Held h = held[index];
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
      check(h);
      allocator.Free(h.data, h.bytes);
    } else {
      const size_t bytes = 1 + random() % (random() % 8 ? 3000 : 400000);
      const auto mark = static_cast<unsigned char>(random());
      auto* data = static_cast<unsigned char*>(allocator.Allocate(bytes));
      std::memset(data, mark, bytes);
      held.push_back({data, bytes, mark});
    }
  }
  for (const Held& h : held) {
    check(h);
    allocator.Free(h.data, h.bytes);
  }
  return damaged;
}

TEST(CachingAllocator, BlocksOfManyThreadsNeverOverlap) {
  CachingAllocator allocator;
  std::vector<std::thread> threads;
  std::atomic<int> damaged{0};
  for (unsigned t = 0; t < 8; ++t)
    threads.emplace_back([&, t] { damaged += Churn(allocator, t, 1500); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(allocator.stats().live, 0u);
}

// The cache can be emptied and its statistics read while other threads allocate.
TEST(CachingAllocator, IsEmptiedWhileThreadsAllocate) {
  CachingAllocator allocator;
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::thread janitor([&] {
    while (!done) {
      allocator.EmptyCache();
      allocator.ResetPeak();
      const MemoryStats stats = allocator.stats();
      if (stats.live > stats.peak || stats.live > stats.reserved) ++wrong;
      std::this_thread::yield();
    }
  });
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 7; ++t)
    threads.emplace_back([&, t] { wrong += Churn(allocator, 100 + t, 1000); });
  for (std::thread& thread : threads) thread.join();
  done = true;
  janitor.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(allocator.stats().live, 0u);
  allocator.ReleaseAll();
  EXPECT_EQ(allocator.stats().reserved, 0u);
}

// A thread can free a block that another thread has allocated.
TEST(CachingAllocator, BlocksChangeHands) {
  CachingAllocator allocator;
  constexpr int kThreads = 8, kRounds = 10, kBlocks = 9;
  std::vector<std::vector<void*>> hands(kThreads);
  const auto bytes = [](int i) { return i % 3 ? size_t{700} * (i + 1) : size_t{300000} * (i + 1); };
  std::atomic<int> damaged{0};
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::thread> threads;
    std::vector<std::vector<void*>> next(kThreads);
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (int i = 0; i < kBlocks; ++i) {
          auto* data = static_cast<int*>(allocator.Allocate(bytes(i)));
          *data = t * kBlocks + i;
          if (!hands[t].empty()) {
            damaged +=
                *static_cast<int*>(hands[t][i]) != (t + kThreads - 1) % kThreads * kBlocks + i;
            allocator.Free(hands[t][i], bytes(i));
          }
          next[t].push_back(data);
        }
      });
    for (std::thread& thread : threads) thread.join();
    for (int t = 0; t < kThreads; ++t) hands[(t + 1) % kThreads] = next[t];
  }
  for (const auto& blocks : hands)
    for (int i = 0; i < kBlocks; ++i) allocator.Free(blocks[i], bytes(i));
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(allocator.stats().live, 0u);
}

TEST(CachingAllocator, RefusesMoreThanTheMachineHas) {
  CachingAllocator allocator;
  EXPECT_THROW(allocator.Allocate(size_t{1} << 50), OutOfMemory);
  void* data = allocator.Allocate(100);  // the allocator still works
  allocator.Free(data, 100);
}

}  // namespace
}  // namespace singa
