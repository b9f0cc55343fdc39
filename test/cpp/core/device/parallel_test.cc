#include "core/device/parallel.h"

#include <omp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support.h"

namespace singa::test {
namespace {

/// Works for up to `most` microseconds, drawn by `draw`.
void WorkFor(int most, uint64_t draw) {
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::microseconds(std::mt19937_64(draw)() % (most + 1));
  while (std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

// Pieces take random times, so that threads meet in the shares of others.
TEST(ParallelItems, GivesEachItemToOneThread) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 60; ++trial) {
    const ThreadCount scope(std::vector{1, 2, 3, 4, 7, 16}[trial % 6]);
    const int64_t n = trial < 12 ? trial : static_cast<int64_t>(random() % 200);
    const int64_t threads = 1 + static_cast<int64_t>(random() % 16);
    const Order order = random() % 2 ? Order::kForward : Order::kBackward;
    std::vector<std::atomic<int>> times(static_cast<size_t>(n)), busy(static_cast<size_t>(threads));
    std::atomic<int> shared{0};
    ParallelItems(
        n, threads,
        [&](Items& items) {
          ASSERT_LT(items.thread(), threads);
          auto& own = busy[static_cast<size_t>(items.thread())];
          shared += own++ != 0;  // two threads with the same memory
          for (const int64_t i : items) {
            ++times[static_cast<size_t>(i)];
            WorkFor(60, static_cast<uint64_t>(n * 1000 + i));
          }
          --own;
        },
        order);
    EXPECT_EQ(shared, 0);
    for (const auto& count : times) EXPECT_EQ(count, 1) << n << " items, " << threads << " threads";
  }
}

// The first piece of one thread ends after all others. With shares that cannot be taken over, the
// rest of its share would never begin.
TEST(ParallelItems, DoNotWaitForAThreadThatIsPutAside) {
  for (const int threads : {2, 3, 4, 8}) {
    const ThreadCount scope(threads);
    const int64_t n = threads * 5;
    for (int64_t late = 0; late < threads; ++late) {
      std::atomic<int64_t> done{0};
      ParallelItems(n, threads, [&](Items& items) {
        for (const int64_t i : items) {
          while (i == late * 5 && done < n - 1) std::this_thread::yield();
          ++done;
        }
      });
      EXPECT_EQ(done, n);
    }
  }
}

TEST(ParallelItems, AThreadTakesItsShareInOrder) {
  const ThreadCount scope(3);
  for (const Order order : {Order::kForward, Order::kBackward}) {
    std::vector<std::vector<int64_t>> own(3), others(3);
    ParallelItems(
        60, 3,
        [&](Items& items) {
          const auto thread = static_cast<size_t>(items.thread());
          for (const int64_t i : items) {
            (i / 20 == items.thread() ? own : others)[thread].push_back(i);
            WorkFor(40, static_cast<uint64_t>(i));
          }
        },
        order);
    for (size_t thread = 0; thread < 3; ++thread) {
      if (order == Order::kBackward) std::reverse(own[thread].begin(), own[thread].end());
      EXPECT_TRUE(std::is_sorted(own[thread].begin(), own[thread].end()));
    }
  }
}

TEST(ParallelItems, AreAllDoneByFewerThreadsThanWereAskedFor) {
  const ThreadCount scope(13);
  omp_set_dynamic(1);  // no more threads than idle processors
  std::vector<std::atomic<int>> times(100);
  ParallelItems(100, 13, [&](Items& items) {
    for (const int64_t i : items) ++times[static_cast<size_t>(i)];
  });
  omp_set_dynamic(0);
  for (const auto& count : times) EXPECT_EQ(count, 1);
}

TEST(ParallelItems, RunOnTheCallersThreadInsideOfALoop) {
  const ThreadCount scope(2);
  std::atomic<int> inner{0};
  ParallelItems(2, 2, [&](Items& outer) {
    for ([[maybe_unused]] const int64_t i : outer) {
      const auto here = std::this_thread::get_id();
      ParallelItems(10, 2, [&](Items& items) {
        EXPECT_EQ(std::this_thread::get_id(), here);
        EXPECT_EQ(items.thread(), 0);
        for ([[maybe_unused]] const int64_t j : items) ++inner;
      });
    }
  });
  EXPECT_EQ(inner, 20);
}

// OpenMP then calls no region parallel, so the inner loop, which needs memory for more shares, must
// know by itself that it is inside of another.
TEST(ParallelItems, RunOnTheCallersThreadInsideOfALoopThatGotOneThread) {
  const int levels = omp_get_max_active_levels();
  omp_set_max_active_levels(0);
  const ThreadCount scope(200);
  std::vector<std::atomic<int>> times(50);
  std::atomic<int> inner{0};
  ParallelItems(50, 4, [&](Items& outer) {
    for (const int64_t i : outer) {
      ++times[static_cast<size_t>(i)];
      EXPECT_EQ(detail::CountThreads(1000, 1), 1);
      ParallelItems(200, 200, [&](Items& items) {
        for ([[maybe_unused]] const int64_t j : items) ++inner;
      });
    }
  });
  omp_set_max_active_levels(levels);
  for (const auto& count : times) EXPECT_EQ(count, 1);
  EXPECT_EQ(inner, 50 * 200);
}

TEST(ParallelItems, RaiseTheFirstException) {
  const ThreadCount scope(3);
  const auto fail = [](Items& items) {
    for (const int64_t i : items)
      if (i == 17) throw std::runtime_error("item 17");
  };
  EXPECT_THROW(ParallelItems(30, 3, fail), std::runtime_error);
  EXPECT_THROW(ParallelItems(int64_t{1} << 32, 3, fail), std::invalid_argument);
}

TEST(ParallelFor, CoversTheRangeOnce) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 60; ++trial) {
    const ThreadCount scope(std::vector{1, 2, 3, 16}[trial % 4]);
    const auto n = static_cast<int64_t>(random() % (trial % 3 ? 300 : 100000));
    const auto grain = static_cast<int64_t>(random() % 40);
    std::vector<std::atomic<int>> times(static_cast<size_t>(n));
    std::atomic<int> split{0};
    ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      split += n >= 16 * kPiecesOfShare * 1024 && begin % 64 != 0;
      for (int64_t i = begin; i < end; ++i) ++times[static_cast<size_t>(i)];
      WorkFor(40, static_cast<uint64_t>(begin));
    });
    EXPECT_EQ(split, 0) << "pieces share a cache line";
    for (const auto& count : times) ASSERT_EQ(count, 1);
  }
}

// The numbers differ in size, so that another order of additions would give another sum.
TEST(ParallelReduce, HasTheSameBitsOnAnyNumberOfThreads) {
  std::mt19937_64 random(3);
  std::vector<float> x(5000);
  for (float& value : x)
    value = std::ldexp(static_cast<float>(random() % 1000), static_cast<int>(random() % 30));
  SameOnThreads({2, 3, 4, 5, 8, 16}, [&] {
    return ParallelReduce(
        5000, 10, 0.0f,
        [&](int64_t begin, int64_t end) {
          WorkFor(20, static_cast<uint64_t>(begin));
          return std::accumulate(x.begin() + begin, x.begin() + end, 0.0f);
        },
        std::plus<float>());
  });
}

}  // namespace
}  // namespace singa::test
