#include "core/device/waiting.h"

#include <omp.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "support.h"

namespace singa::test {
namespace {

using detail::AlonePolicy;
using detail::MoreThreads;
using detail::WaitPolicy;

/// A process whose threads lose their core `often` times in a second, and wait for one for a part
/// `waits` of the time.
class Process {
 public:
  double often = 0, waits = 0;
  int asked = 0;  ///< how often for the time without a core

  /// Lets time pass until the policy looks, and has it look.
  void Look() {
    const double passed = policy_.next() - now_;
    now_ = policy_.next();
    lost_ += often * passed;
    without_ += waits * passed;
    policy_.Look(now_, static_cast<long>(lost_), [this] {
      ++asked;
      return without_;
    });
  }
  bool soon() const { return policy_.soon(); }
  double wait() const { return policy_.next() - now_; }

 private:
  double now_ = 1000, lost_ = 50, without_ = 7;
  WaitPolicy policy_{now_, static_cast<long>(lost_)};
};

TEST(WaitPolicy, SpinsAlone) {
  Process process;
  process.often = 20;
  for (int i = 0; i < 20; ++i) {
    process.Look();
    EXPECT_FALSE(process.soon());
  }
  EXPECT_EQ(process.asked, 0);
}

TEST(WaitPolicy, SpinsBesideProgramsThatRunForAMoment) {
  Process process;
  process.often = 500;
  process.waits = 0.1;
  for (int i = 0; i < 20; ++i) {
    process.Look();
    EXPECT_FALSE(process.soon());
  }
}

TEST(WaitPolicy, SleepsSoonBesideABusyProgram) {
  Process process;
  process.often = 80;
  process.waits = 0.5;
  process.Look();  // asks for the time from which it will count
  EXPECT_FALSE(process.soon());
  for (const double hold : {0.2, 0.4, 0.8, 1.6, 3.2, 3.2}) {
    process.Look();
    EXPECT_TRUE(process.soon());
    EXPECT_NEAR(process.wait(), hold, 1e-9);
    process.Look();  // whether the program has gone
    EXPECT_FALSE(process.soon());
    EXPECT_NEAR(process.wait(), WaitPolicy::kWatch, 1e-9);
  }
  process.often = process.waits = 0;
  for (int i = 0; i < 3; ++i) {
    process.Look();
    EXPECT_FALSE(process.soon());
  }
  process.often = 80;
  process.waits = 0.5;
  process.Look();
  process.Look();
  EXPECT_TRUE(process.soon());
  EXPECT_NEAR(process.wait(), WaitPolicy::kFirstHold, 1e-9);
}

/// How many regions the policy has computed alone, after kTimed of several threads.
int AloneAfter(AlonePolicy& policy, double seconds, double own, double part) {
  for (int i = 0; i < AlonePolicy::kTimed; ++i) {
    EXPECT_FALSE(policy.Ask());
    policy.Add(seconds, own, part);
  }
  int alone = 0;
  while (alone < 10000 && policy.Ask()) ++alone;
  return alone;
}

TEST(AlonePolicy, ComputesAloneWhereOthersAreWaitedForLongerThanTheyHelp) {
  AlonePolicy policy;
  EXPECT_EQ(AloneAfter(policy, 1.9, 1, 0.5), 0);
  for (const int hold : {64, 128, 256, 512, 1024, 2048, 4096, 4096})
    EXPECT_EQ(AloneAfter(policy, 2.1, 1, 0.5), hold);
  EXPECT_EQ(AloneAfter(policy, 1.1, 1, 0.5), 0);  // the other threads help again
  EXPECT_EQ(AloneAfter(policy, 2.1, 2, 1), 64);   // the caller has computed all of it
  EXPECT_EQ(AloneAfter(policy, 2.1, 1, 0.25), 0);
}

int64_t Threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return std::distance(begin(all), end(all));
}

/// Waits until this process has `count` threads, for some seconds at most.
void ExpectThreads(int64_t count) {
  for (int i = 0; i < 5000 && Threads() != count; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(Threads(), count);
}

TEST(MoreThreads, AreMoreThanThereAreProcessors) {
  const ThreadCount scope(omp_get_num_procs());
  const int64_t before = Threads();
  {
    const MoreThreads more;
    ExpectThreads(before + 2);
  }
  ExpectThreads(before);
}

}  // namespace
}  // namespace singa::test
