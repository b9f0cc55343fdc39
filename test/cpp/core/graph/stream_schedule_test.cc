#include "core/graph/stream_schedule.h"

#include <algorithm>
#include <array>

#include "support.h"

namespace singa::test {
namespace {

using Lists = std::vector<std::vector<size_t>>;

std::array<char, 64> g_memory;

ByteUse Reads(size_t at, size_t bytes) { return {g_memory.data() + at, bytes, false}; }
ByteUse Writes(size_t at, size_t bytes) { return {g_memory.data() + at, bytes, true}; }

bool Conflict(const Step& a, const Step& b) {
  for (const ByteUse& x : a.uses)
    for (const ByteUse& y : b.uses) {
      const char *p = static_cast<const char*>(x.data), *q = static_cast<const char*>(y.data);
      const bool meet = std::max(p, q) < std::min(p + x.bytes, q + y.bytes);
      if (meet && (x.writes || y.writes)) return true;
    }
  return false;
}

/// For each step, the steps that it depends on, directly or indirectly.
std::vector<std::vector<bool>> Closure(const Lists& after) {
  std::vector<std::vector<bool>> closure(after.size(), std::vector<bool>(after.size()));
  for (size_t n = 0; n < after.size(); ++n)
    for (size_t d : after[n]) {
      closure[n][d] = true;
      for (size_t i = 0; i < d; ++i)
        if (closure[d][i]) closure[n][i] = true;
    }
  return closure;
}

/// Compares all pairs of steps.
std::vector<std::vector<bool>> ConflictsOf(const std::vector<Step>& steps) {
  Lists after(steps.size());
  for (size_t n = 0; n < steps.size(); ++n)
    for (size_t d = 0; d < n; ++d)
      if (Conflict(steps[n], steps[d])) after[n].push_back(d);
  return Closure(after);
}

std::vector<Step> RandomSteps(Random& random) {
  std::vector<Step> steps(static_cast<size_t>(random.Int(0, 30)));
  const int64_t longest = random.Coin() ? 4 : 24;
  for (Step& step : steps) {
    step.fills = random.Int(0, 3) == 0;
    for (int64_t uses = random.Int(0, 4); uses > 0; --uses) {
      const int64_t bytes = random.Int(0, longest);
      const auto at = static_cast<size_t>(random.Int(0, 64 - bytes));
      step.uses.push_back({g_memory.data() + at, static_cast<size_t>(bytes), random.Coin()});
    }
  }
  return steps;
}

TEST(Dependencies, AreThoseOfAllPairsOfSteps) {
  Random random(3);
  for (int round = 0; round < 2000; ++round) {
    const std::vector<Step> steps = RandomSteps(random);
    EXPECT_EQ(Closure(Dependencies(steps)), ConflictsOf(steps)) << round;
  }
}

TEST(Dependencies, BytesThatAreUsedAgainWaitForTheirReaders) {
  const std::vector<Step> steps = {{{Writes(0, 8)}},
                                   {{Reads(0, 8), Writes(8, 8)}},
                                   {{Reads(4, 4), Writes(16, 8)}},
                                   {{Writes(6, 1)}},  // after both steps that read it
                                   {{Reads(0, 4), Writes(24, 8)}}};  // not the bytes of step 3
  EXPECT_EQ(Dependencies(steps), (Lists{{}, {0}, {0}, {0, 1, 2}, {0}}));
}

TEST(PlanStreams, KeepsToTheDependenciesAndWaitsForNothingTwice) {
  Random random(4);
  for (int round = 0; round < 1000; ++round) {
    const std::vector<Step> steps = RandomSteps(random);
    const auto most = static_cast<size_t>(random.Int(1, 4));
    const StreamSchedule plan = PlanStreams(steps, most);
    const auto closure = Closure(plan.after), conflicts = ConflictsOf(steps);
    ASSERT_EQ(plan.after.size(), steps.size());
    size_t longest = 0;
    std::vector<size_t> depth(steps.size(), 1);
    for (size_t n = 0; n < steps.size(); ++n) {
      for (size_t d = 0; d < n; ++d) {
        const bool waits = conflicts[n][d] || (steps[n].fills && steps[d].fills);
        EXPECT_TRUE(closure[n][d] || !waits) << round;
      }
      for (size_t d : plan.after[n]) {
        depth[n] = std::max(depth[n], depth[d] + 1);
        for (size_t other : plan.after[n]) EXPECT_FALSE(closure[other][d]) << round;
      }
      longest = std::max(longest, depth[n]);
    }
    EXPECT_EQ(plan.longest, longest) << round;
    EXPECT_LE(plan.count, most);
    // At most `most` steps are mutually independent. Finds such a set greedily.
    for (size_t n = 0; n < steps.size(); ++n) {
      std::vector<size_t> beside = {n};
      for (size_t d = 0; d < n; ++d)
        if (std::none_of(beside.begin(), beside.end(),
                         [&](size_t b) { return closure[std::max(b, d)][std::min(b, d)]; }))
          beside.push_back(d);
      EXPECT_LE(beside.size(), most) << round;
    }
  }
}

TEST(PlanStreams, AreTheSidesOfABlock) {
  // 0 -> 1 -> 2 -> 5, 0 -> 3 -> 5, 0 -> 4 -> 5
  const std::vector<Step> block = {{{Writes(0, 8)}},
                                   {{Reads(0, 8), Writes(8, 8)}},
                                   {{Reads(8, 8), Writes(16, 8)}},
                                   {{Reads(0, 8), Writes(24, 8)}},
                                   {{Reads(0, 8), Writes(32, 8)}},
                                   {{Reads(16, 24), Writes(40, 8)}}};
  const StreamSchedule wide = PlanStreams(block, 4);
  EXPECT_EQ(wide.after, (Lists{{}, {0}, {1}, {0}, {0}, {2, 3, 4}}));
  EXPECT_EQ(wide.count, 3u);
  EXPECT_EQ(wide.longest, 4u);

  const StreamSchedule two = PlanStreams(block, 2);
  EXPECT_EQ(two.after, (Lists{{}, {0}, {1}, {0}, {3}, {2, 4}}));
  EXPECT_EQ(two.count, 2u);

  const StreamSchedule chain = PlanStreams(block, 1);
  EXPECT_EQ(chain.after, (Lists{{}, {0}, {1}, {2}, {3}, {4}}));
  EXPECT_EQ(chain.longest, block.size());
}

TEST(PlanStreams, WhatFillsTheDeviceIsOneChain) {
  const std::vector<Step> steps = {
      {{Writes(0, 8)}, true}, {{Writes(8, 8)}, true}, {{Writes(16, 8)}, false}};
  EXPECT_EQ(PlanStreams(steps, 4).after, (Lists{{}, {0}, {}}));
}

}  // namespace
}  // namespace singa::test
