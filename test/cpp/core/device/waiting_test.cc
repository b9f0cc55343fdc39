#include "core/device/waiting.h"

#include <omp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

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

/// Waits, for some seconds at most, until this process has kept `count` threads for a while; any
/// number of them: -1. Returns what it then has.
int64_t AwaitThreads(int64_t count) {
  int64_t now = Threads();
  for (int i = 0, times = 0; i < 5000 && times < 30; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const int64_t before = std::exchange(now, Threads());
    times = now == (count < 0 ? before : count) ? times + 1 : 0;
  }
  return now;
}

TEST(MoreThreads, AreMoreThanThereAreProcessors) {
  const ThreadCount scope(omp_get_num_procs());
  const int64_t before = AwaitThreads(-1);
  {
    const MoreThreads more;
    EXPECT_EQ(AwaitThreads(before + 2), before + 2);
  }
  EXPECT_EQ(AwaitThreads(before), before);
}

// GNU OpenMP would end the process. Sanitizers need more memory than any limit leaves them.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(MoreThreads, AreNotStartedWhereTheSystemHasNone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto start = [] {
    const ThreadCount scope(omp_get_num_procs());
    constexpr size_t kStack = size_t{256} << 20;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, kStack);
    pthread_setattr_default_np(&attributes);
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = static_cast<rlim_t>(pages * getpagesize()) + kStack * 3 / 2;
    const rlimit limit = {most, most};  // for one thread, not for two
    setrlimit(RLIMIT_AS, &limit);
    const int64_t before = AwaitThreads(-1);
    const MoreThreads more;
    EXPECT_EQ(AwaitThreads(before), before);
    std::_Exit(testing::Test::HasFailure());
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(0), "");
}
#endif

}  // namespace
}  // namespace singa::test
