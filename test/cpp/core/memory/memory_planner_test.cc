#include "core/memory/memory_planner.h"

#include "support.h"

namespace singa::test {
namespace {

void ExpectNoOverlap(const std::vector<Interval>& intervals, size_t total, size_t alignment = 64) {
  for (size_t i = 0; i < intervals.size(); ++i) {
    const Interval& a = intervals[i];
    EXPECT_EQ(a.offset % alignment, 0u);
    EXPECT_LE(a.offset + a.bytes, total);
    for (size_t j = 0; j < i; ++j) {
      const Interval& b = intervals[j];
      const bool in_time = a.first <= b.last && b.first <= a.last;
      const bool in_space = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
      EXPECT_FALSE(in_time && in_space) << i << " and " << j;
    }
  }
}

TEST(PlanOffsets, NeverOverlapsInTimeAndSpace) {
  Random random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> intervals;
    const int64_t count = random.Int(1, 60);
    for (int64_t i = 0; i < count; ++i) {
      const int first = static_cast<int>(random.Int(0, 40));
      intervals.push_back({static_cast<size_t>(random.Int(0, 5000)), first,
                           first + static_cast<int>(random.Int(0, 12))});
    }
    const size_t alignment = round % 2 ? 256u : 64u;
    const size_t total = PlanOffsets(&intervals, alignment);
    ExpectNoOverlap(intervals, total, alignment);
    EXPECT_GE(total, PeakBytes(intervals, alignment));
  }
}

TEST(SpreadOffsets, KeepsApartWhatSharesBytesAsFarAsTheyGo) {
  Random random(8);
  for (int round = 0; round < 200; ++round) {
    std::vector<Interval> intervals;
    const int64_t count = random.Int(1, 60);
    for (int64_t i = 0; i < count; ++i) {
      const int first = static_cast<int>(random.Int(0, 40));
      intervals.push_back({static_cast<size_t>(random.Int(1, 5000)), first,
                           first + static_cast<int>(random.Int(0, 6))});
    }
    std::vector<Interval> tight = intervals, same = intervals, some = intervals;
    const size_t least = PlanOffsets(&tight);
    EXPECT_LE(SpreadOffsets(&same, 64, 0), least);
    ExpectNoOverlap(same, least);
    const size_t bytes = static_cast<size_t>(random.Int(0, 60000));
    const size_t used = SpreadOffsets(&some, 64, bytes);
    EXPECT_LE(used, std::max(least, bytes));
    ExpectNoOverlap(some, used);

    const size_t total = SpreadOffsets(&intervals, 64, 60 * 5056);
    ExpectNoOverlap(intervals, total);
    std::vector<Interval> longer = intervals;
    for (Interval& interval : longer) interval.last += kMostApart;
    ExpectNoOverlap(longer, total);
  }
}

TEST(PlanOffsets, AChainNeedsTwoBlocksWhateverItsLength) {
  std::vector<Interval> chain;
  for (int i = 0; i < 50; ++i) chain.push_back({1000, i, i + 1});
  EXPECT_EQ(PlanOffsets(&chain), 2u * 1024);
  EXPECT_EQ(PeakBytes(chain), 2u * 1024);
}

TEST(PlanOffsets, ForwardAndBackwardNeedEachActivationOnce) {
  // Activation i lives from its forward step to its backward step, gradient i for two backward
  // steps.
  std::vector<Interval> intervals;
  constexpr int kDepth = 20;
  for (int i = 0; i < kDepth; ++i) intervals.push_back({640, i, 2 * kDepth - i});
  for (int i = 0; i < kDepth; ++i) intervals.push_back({640, 2 * kDepth - i, 2 * kDepth - i + 1});
  const size_t total = PlanOffsets(&intervals);
  ExpectNoOverlap(intervals, total);
  EXPECT_EQ(total, PeakBytes(intervals));
}

/// A plan that does nothing. Its output may reuse the memory of its first input.
class Step final : public Plan {
 public:
  explicit Step(bool in_place, size_t workspace = 0)
      : Plan("test"), in_place_(in_place), workspace_(workspace) {}
  void Run(const Execution&) const override {}
  size_t workspace_bytes() const override { return workspace_; }
  int inplace_input(size_t) const override { return in_place_ ? 0 : -1; }

 private:
  bool in_place_;
  size_t workspace_;
};

Node NodeOf(const Tensor& from, const Tensor& to, bool in_place, size_t workspace = 0) {
  Node node;
  node.op = "Step";
  node.plan = std::make_shared<Step>(in_place, workspace);
  if (!from.empty()) node.inputs = {from};
  node.outputs = {to};
  return node;
}

size_t OffsetOf(const SegmentMemory& memory, const Tensor& t) {
  for (const auto& place : memory.blocks)
    if (place.block == t.block()) return place.offset;
  ADD_FAILURE() << "not planned";
  return SIZE_MAX;
}

TEST(PlanSegment, AnOutputTakesOverAnInputThatIsNotUsedAgain) {
  const Tensor a({64}), b({64}), c({64});
  const auto all = [](const Block*) { return true; };
  std::vector<Node> nodes = {NodeOf({}, a, false), NodeOf(a, b, true), NodeOf(b, c, true)};
  SegmentMemory memory = PlanSegment(nodes, all, {});
  EXPECT_EQ(memory.bytes, 256u);
  EXPECT_EQ(memory.in_place, 2);
  EXPECT_EQ(OffsetOf(memory, a), OffsetOf(memory, c));

  // If a is used later, b gets other memory.
  nodes.push_back(NodeOf(a, Tensor({64}), false));
  memory = PlanSegment(nodes, all, {});
  EXPECT_EQ(memory.in_place, 1);
  EXPECT_NE(OffsetOf(memory, a), OffsetOf(memory, b));
  EXPECT_EQ(OffsetOf(memory, b), OffsetOf(memory, c));

  // Memory of a block that persists, or is lent to the host, is not reused either.
  nodes.pop_back();
  memory = PlanSegment(nodes, [&](const Block* x) { return x != a.block().get(); }, {});
  EXPECT_EQ(memory.in_place, 1);
  const BlockPtr lent[] = {b.block()};
  memory = PlanSegment(nodes, all, lent);
  EXPECT_EQ(memory.in_place, 1);
  EXPECT_NE(OffsetOf(memory, b), OffsetOf(memory, c));
}

TEST(PlanSegment, AWorkspaceIsMemoryWhileItsNodeRuns) {
  const Tensor a({16}), b({16});
  const std::vector<Node> nodes = {NodeOf({}, a, false, 4096), NodeOf(a, b, false, 640)};
  const SegmentMemory memory = PlanSegment(nodes, [](const Block*) { return true; }, {});
  EXPECT_EQ(memory.peak, 4096u + 64);
  EXPECT_EQ(memory.bytes, memory.peak);
  const size_t offset = OffsetOf(memory, a);
  EXPECT_TRUE(memory.workspaces[0] >= offset + 64 || memory.workspaces[0] + 4096 <= offset);
}

TEST(PlanSegment, NodesSideBySideGetMemoryOfTheirOwn) {
  const Tensor a({16}), b({16});
  const std::vector<Node> nodes = {NodeOf({}, a, false, 4096), NodeOf({}, b, false, 4096)};
  const auto all = [](const Block*) { return true; };
  const SegmentMemory tight = PlanSegment(nodes, all, {});
  EXPECT_EQ(tight.workspaces[0], tight.workspaces[1]);
  const SegmentMemory spread = PlanSegment(nodes, all, {}, 3 * 4096);
  EXPECT_EQ(spread.bytes, 2u * (4096 + 64));
  EXPECT_EQ(spread.peak, tight.peak);
  EXPECT_NE(spread.workspaces[0], spread.workspaces[1]);
}

}  // namespace
}  // namespace singa::test
