#include "model/dispatch/plan_cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace singa {
namespace {

class NumberedPlan final : public Plan {
 public:
  NumberedPlan(int number, size_t bytes) : Plan("test"), number_(number), bytes_(bytes) {}
  void Run(const Execution&) const override {}
  size_t bytes() const override { return bytes_; }
  int number() const { return number_; }

 private:
  int number_;
  size_t bytes_;
};

struct Context {
  int number;
  size_t bytes;
};

PlanPtr Make(const void* opaque) {
  const auto& context = *static_cast<const Context*>(opaque);
  return std::make_shared<NumberedPlan>(context.number, context.bytes);
}

OpSignature Key(uint64_t value) {
  OpSignature signature("PlanCacheTest");
  signature.Add("value", value);
  return signature;
}

int Find(uint64_t key, int number = 0, size_t bytes = 100) {
  const Context context{number, bytes};
  return static_cast<const NumberedPlan&>(*FindOrMakePlan(Key(key), Make, &context)).number();
}

class PlanCacheTest : public testing::Test {
 protected:
  void SetUp() override { ClearPlanCache(); }
  void TearDown() override {
    SetPlanCacheLimit(uint64_t{256} << 20, 4096);
    ClearPlanCache();
  }
};

TEST_F(PlanCacheTest, FindsWhatItMade) {
  EXPECT_EQ(Find(1, 10), 10);
  EXPECT_EQ(Find(1, 11), 10);
  EXPECT_EQ(Find(2, 12), 12);
  const PlanCacheStats stats = GetPlanCacheStats();
  EXPECT_EQ(stats.hits, 1u);
  EXPECT_EQ(stats.misses, 2u);
  EXPECT_EQ(stats.entries, 2u);
  ASSERT_EQ(stats.by_op.size(), 1u);
  EXPECT_EQ(stats.by_op[0].op, "PlanCacheTest");
  EXPECT_EQ(stats.by_op[0].misses, 2u);
}

TEST_F(PlanCacheTest, DropsTheLeastRecentlyUsed) {
  SetPlanCacheLimit(0, 3);
  Find(1, 1), Find(2, 2), Find(3, 3);
  Find(1, 9);  // 2 is now the oldest
  Find(4, 4);  // evicts it
  EXPECT_EQ(Find(1, 90), 1);
  EXPECT_EQ(Find(3, 90), 3);
  EXPECT_EQ(Find(2, 92), 92);
  EXPECT_GE(GetPlanCacheStats().evictions, 1u);
}

TEST_F(PlanCacheTest, CountsWhatItHasForgotten) {
  Find(1, 1), Find(2, 2), Find(3, 3);
  const uint64_t before = CountForgottenPlans();
  Find(1, 1), Find(4, 4);
  EXPECT_EQ(CountForgottenPlans(), before);
  SetPlanCacheLimit(0, 2);
  EXPECT_EQ(CountForgottenPlans(), before + 2);
  DropPlan(Key(4));
  EXPECT_EQ(CountForgottenPlans(), before + 3);
  DropPlans();
  EXPECT_EQ(CountForgottenPlans(), before + 4);
  EnablePlanCache(false);
  Find(1, 1);
  EnablePlanCache(true);
  EXPECT_EQ(CountForgottenPlans(), before + 5);
}

TEST_F(PlanCacheTest, StaysWithinItsBytes) {
  SetPlanCacheLimit(1 << 20, 0);
  for (uint64_t key = 0; key < 5000; ++key) {
    Find(key, 0, 1000 + key % 500);
    const PlanCacheStats stats = GetPlanCacheStats();
    EXPECT_LE(stats.bytes, uint64_t{1} << 20);
  }
  EXPECT_GT(GetPlanCacheStats().evictions, 0u);
}

TEST_F(PlanCacheTest, ConcurrentMissesBuildOnce) {
  static std::atomic<int> built;
  built = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([] {
      FindOrMakePlan(
          Key(77),
          [](const void*) -> PlanPtr {
            ++built;
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            return std::make_shared<NumberedPlan>(1, 1);
          },
          nullptr);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(built, 1);
}

// Eight threads look up common and separate keys while two others clear the cache, change its
// limits and read its statistics. Each lookup returns the plan of its key.
TEST_F(PlanCacheTest, ThreadsFindTheirOwnWhileItIsClearedAndLimited) {
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads, others;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1500; ++i) {
        const int shared = i % 7, own = 1000 + 100 * t + i % 40;
        wrong += Find(static_cast<uint64_t>(shared), shared) != shared;
        wrong += Find(static_cast<uint64_t>(own), own) != own;
      }
    });
  others.emplace_back([&] {
    while (!done) {
      ClearPlanCache();
      std::this_thread::yield();
    }
  });
  others.emplace_back([&] {
    for (uint64_t i = 0; !done; ++i) {
      SetPlanCacheLimit(1000 + i % 3 * 1000, 1 + i % 50);
      wrong += GetPlanCacheStats().entries > 4096;
      std::this_thread::yield();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  for (std::thread& thread : others) thread.join();
  EXPECT_EQ(wrong, 0);
  SetPlanCacheLimit(500, 3);
  const PlanCacheStats stats = GetPlanCacheStats();
  EXPECT_LE(stats.entries, 3u);
  EXPECT_LE(stats.bytes, 500u);
  EXPECT_EQ(Find(3, 3), 3);
}

// All threads that wait for a plan get the error if making it fails. The next lookup tries again.
TEST_F(PlanCacheTest, AFailedBuildReachesAllWhoWait) {
  static std::atomic<int> built;
  built = 0;
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      try {
        FindOrMakePlan(
            Key(78),
            [](const void*) -> PlanPtr {
              ++built;
              std::this_thread::sleep_for(std::chrono::milliseconds(10));
              throw std::runtime_error("no");
            },
            nullptr);
      } catch (const std::runtime_error& error) {
        failed += std::string(error.what()) == "no";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 8);
  EXPECT_GE(built, 1);
  EXPECT_EQ(Find(78, 5), 5);
}

TEST_F(PlanCacheTest, AFailedBuildLeavesNothing) {
  const auto fail = [](const void*) -> PlanPtr { throw std::runtime_error("no"); };
  EXPECT_THROW(FindOrMakePlan(Key(5), fail, nullptr), std::runtime_error);
  EXPECT_EQ(GetPlanCacheStats().entries, 0u);
  EXPECT_EQ(Find(5, 55), 55);
}

TEST_F(PlanCacheTest, SwitchedOffMakesEachAnew) {
  EnablePlanCache(false);
  EXPECT_EQ(Find(1, 1), 1);
  EXPECT_EQ(Find(1, 2), 2);
  EnablePlanCache(true);
  EXPECT_EQ(GetPlanCacheStats().entries, 0u);
}

TEST(Preference, IsOneOfThose) {
  const Preference before = GetPreference();
  EXPECT_THROW(SetPreference(static_cast<Preference>(99)), std::invalid_argument);
  EXPECT_THROW(SetPreference(static_cast<Preference>(-1)), std::invalid_argument);
  EXPECT_EQ(GetPreference(), before);
}

TEST(OpSignature, ComparesEveryWordAndItsOrder) {
  OpSignature a("X"), b("X"), c("X"), d("Y");
  a.Add("p", 1), a.Add("q", 2);
  b.Add("p", 1), b.Add("q", 2);
  c.Add("p", 2), c.Add("q", 1);
  d.Add("p", 1), d.Add("q", 2);
  EXPECT_TRUE(a == b);
  EXPECT_EQ(a.hash(), b.hash());
  EXPECT_FALSE(a == c);
  EXPECT_FALSE(a == d);
  EXPECT_STREQ(a.FirstDifference(c), "p");
  OpSignature e("X");
  e.Add("p", 1);
  EXPECT_FALSE(a == e);
}

}  // namespace
}  // namespace singa
