#include "backend/cuda/runtime/allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>

#include "singa/core/error.h"

namespace singa::cuda {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

/// A device of this size whose memory is never accessed. The test decides when marks are passed.
class FakeDevice final : public MemorySource {
 public:
  explicit FakeDevice(size_t bytes) : left_(bytes) {}
  void* Malloc(size_t bytes) override {
    if (bytes > left_) return nullptr;
    left_ -= bytes;
    next_ += uintptr_t{1} << 40;  // segments are never adjacent
    taken_[reinterpret_cast<void*>(next_)] = bytes;
    return reinterpret_cast<void*>(next_);
  }
  void Free(void* data) override {
    left_ += taken_.at(data);
    taken_.erase(data);
  }
  Event Mark(Stream) override {
    const auto mark = reinterpret_cast<Event>(++marks_);
    open_.insert(mark);
    return mark;
  }
  bool Passed(Event) override { return passed; }
  void Await(Event) override { ++awaited; }
  void Discard(Event mark) override { open_.erase(mark); }

  size_t left() const { return left_; }
  size_t open() const { return open_.size(); }
  bool passed = false;
  int awaited = 0;

 private:
  size_t left_;
  uintptr_t next_ = 0;
  uintptr_t marks_ = 0;
  std::map<void*, size_t> taken_;
  std::set<Event> open_;
};

const Stream kStream = reinterpret_cast<Stream>(1);
const Stream kOther = reinterpret_cast<Stream>(2);

std::string ErrorOf(StreamAllocator& allocator, size_t bytes) {
  try {
    allocator.Allocate(bytes, kStream, "Conv");
  } catch (const OutOfMemory& error) {
    return error.what();
  }
  return {};
}

TEST(StreamAllocator, GivesTheSameMemoryAgainWithoutAskingTheDevice) {
  FakeDevice device(100 * kMiB);
  StreamAllocator allocator(device, "gpu");
  void* a = allocator.Allocate(1000, kStream, "a");
  allocator.Free(a);
  EXPECT_EQ(allocator.Allocate(900, kStream, "b"), a);
  EXPECT_EQ(allocator.stats().system_allocations, 1u);
  EXPECT_EQ(allocator.stats().allocations, 2u);
  EXPECT_EQ(allocator.stats().live, 1024u);  // in units of 512
  EXPECT_EQ(allocator.stats().reserved, 2 * kMiB);
}

TEST(StreamAllocator, TakesTheSmallestPieceThatFits) {
  FakeDevice device(100 * kMiB);
  StreamAllocator allocator(device, "gpu");
  void* large = allocator.Allocate(8 * kMiB, kStream, "");
  void* between = allocator.Allocate(2 * kMiB, kStream, "");
  void* fitting = allocator.Allocate(4 * kMiB, kStream, "");
  void* end = allocator.Allocate(6 * kMiB, kStream, "");
  allocator.Free(large);
  allocator.Free(fitting);
  EXPECT_EQ(allocator.Allocate(3 * kMiB, kStream, ""), fitting);
  EXPECT_EQ(allocator.Allocate(5 * kMiB, kStream, ""), large);
  EXPECT_EQ(allocator.stats().system_allocations, 1u);
  allocator.Free(between);
  allocator.Free(end);
}

TEST(StreamAllocator, NeighboursMergeWhateverTheOrder) {
  for (const auto& order : {std::array{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {2, 0, 1}}) {
    FakeDevice device(40 * kMiB);
    StreamAllocator allocator(device, "gpu");
    std::array<void*, 3> pieces;
    for (void*& piece : pieces) piece = allocator.Allocate(6 * kMiB, kStream, "");
    for (int i : order) allocator.Free(pieces[static_cast<size_t>(i)]);
    EXPECT_EQ(allocator.Allocate(20 * kMiB, kStream, ""), pieces[0]);
    EXPECT_EQ(allocator.stats().system_allocations, 1u);
  }
}

TEST(StreamAllocator, AnotherStreamGetsOtherMemory) {
  FakeDevice device(100 * kMiB);
  StreamAllocator allocator(device, "gpu");
  void* a = allocator.Allocate(100, kStream, "");
  allocator.Free(a);
  EXPECT_NE(allocator.Allocate(100, kOther, ""), a);
  EXPECT_EQ(allocator.Allocate(100, kStream, ""), a);
}

TEST(StreamAllocator, WhatAnotherStreamUsesComesBackWhenItHasPassed) {
  FakeDevice device(100 * kMiB);
  StreamAllocator allocator(device, "gpu");
  void* a = allocator.Allocate(100, kStream, "");
  allocator.RecordUse(a, kStream);  // its own stream: nothing to wait for
  allocator.RecordUse(a, kOther);
  allocator.RecordUse(a, kOther);
  allocator.Free(a);
  EXPECT_EQ(device.open(), 1u);
  EXPECT_NE(allocator.Allocate(100, kStream, ""), a);
  device.passed = true;
  EXPECT_EQ(allocator.Allocate(100, kStream, ""), a);
  EXPECT_EQ(device.open(), 0u);
}

TEST(StreamAllocator, GivesBackWhatIsFreeBeforeItFails) {
  FakeDevice device(50 * kMiB);
  StreamAllocator allocator(device, "gpu");
  allocator.Free(allocator.Allocate(30 * kMiB, kStream, ""));
  void* kept = allocator.Allocate(100, kOther, "");
  EXPECT_EQ(device.left(), 18 * kMiB);
  EXPECT_NE(allocator.Allocate(40 * kMiB, kStream, ""), nullptr);  // in place of the 30
  EXPECT_EQ(allocator.stats().reserved, 42 * kMiB);
  allocator.Free(kept);
}

TEST(StreamAllocator, WaitsForOtherStreamsBeforeItFails) {
  FakeDevice device(40 * kMiB);
  StreamAllocator allocator(device, "gpu");
  void* a = allocator.Allocate(40 * kMiB, kStream, "");
  allocator.RecordUse(a, kOther);
  allocator.Free(a);
  EXPECT_EQ(allocator.Allocate(40 * kMiB, kStream, ""), a);
  EXPECT_EQ(device.awaited, 1);
}

TEST(StreamAllocator, TheLastCornerOfTheDeviceIsUsed) {
  FakeDevice device(3 * kMiB);
  StreamAllocator allocator(device, "gpu");
  EXPECT_NE(allocator.Allocate(2 * kMiB, kStream, ""), nullptr);  // no segment of 20 MiB
  EXPECT_EQ(device.left(), kMiB);
}

TEST(StreamAllocator, OutOfMemoryTellsWhatIsLive) {
  FakeDevice device(64 * kMiB);
  StreamAllocator allocator(device, "cuda:0");
  allocator.Allocate(30 * kMiB, kStream, "ConvForward");
  allocator.Allocate(30 * kMiB, kStream, "ConvForward");
  allocator.Allocate(100, kStream, "Relu");
  allocator.Allocate(100, kStream, "");
  EXPECT_EQ(ErrorOf(allocator, 10 * kMiB),
            "[memory] 10 MiB asked for on cuda:0; 60 MiB in use, 62 MiB reserved"
            "\n  60 MiB in 2 blocks, allocated at ConvForward"
            "\n  512 bytes in 1 block, allocated at the start"
            "\n  512 bytes in 1 block, allocated at Relu");
  // Allocation works again afterwards.
  EXPECT_NE(allocator.Allocate(1000, kStream, ""), nullptr);
}

TEST(StreamAllocator, EmptyCacheAndReleaseAllGiveEverythingBack) {
  FakeDevice device(100 * kMiB);
  StreamAllocator allocator(device, "gpu");
  void* a = allocator.Allocate(100, kStream, "");
  void* b = allocator.Allocate(5 * kMiB, kStream, "");
  allocator.Free(b);
  allocator.EmptyCache();
  EXPECT_EQ(device.left(), 98 * kMiB);
  allocator.Free(a);
  allocator.EmptyCache();
  EXPECT_EQ(device.left(), 100 * kMiB);
  allocator.RecordUse(allocator.Allocate(kMiB, kStream, ""), kOther);
  allocator.ReleaseAll();
  EXPECT_EQ(device.left(), 100 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 0u);
  EXPECT_EQ(allocator.stats().live, 0u);
}

// Random use: live pieces never overlap, and all memory comes back.
TEST(StreamAllocator, PiecesNeverOverlap) {
  FakeDevice device(400 * kMiB);
  StreamAllocator allocator(device, "gpu");
  std::mt19937 random(7);
  std::map<uintptr_t, size_t> live;
  for (int step = 0; step < 20000; ++step) {
    if (live.size() < 40 && random() % 5 < 3) {
      const size_t bytes = random() % 2 ? random() % 4000 : random() % (4 * kMiB);
      void* data = allocator.Allocate(bytes, random() % 4 ? kStream : kOther, "");
      if (random() % 8 == 0) allocator.RecordUse(data, kOther);
      const auto at = reinterpret_cast<uintptr_t>(data);
      ASSERT_EQ(at % 512, 0u);
      const auto next = live.lower_bound(at);
      if (next != live.end()) {
        ASSERT_LE(at + bytes, next->first);
      }
      if (next != live.begin()) {
        ASSERT_LE(std::prev(next)->first + std::prev(next)->second, at);
      }
      live[at] = std::max<size_t>(bytes, 1);
    } else if (!live.empty()) {
      auto it = live.begin();
      std::advance(it, random() % live.size());
      allocator.Free(reinterpret_cast<void*>(it->first));
      live.erase(it);
      device.passed = random() % 2 == 0;
    }
  }
  for (const auto& [data, bytes] : live) allocator.Free(reinterpret_cast<void*>(data));
  allocator.EmptyCache();
  EXPECT_EQ(device.left(), 400 * kMiB);
  EXPECT_EQ(device.open(), 0u);
}

}  // namespace
}  // namespace singa::cuda
