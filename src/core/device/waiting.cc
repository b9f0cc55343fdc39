#include "core/device/waiting.h"

#include <dirent.h>
#include <fcntl.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cinttypes>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "singa/core/threads.h"

// GNU OpenMP's threads spin while they wait for each other, before they sleep. That is quick where
// each has a core. Where another program has taken the core of one, those that spin may keep it
// from running on theirs, and each wait lasts a time slice of the system. Once it is loaded it
// cannot be told to sleep sooner, but it does so by itself, after 100 turns, as long as the process
// has more of its threads than processors (its manual, GOMP_SPINCOUNT). So while other programs use
// our cores, we have a few more of these threads, which sleep.

namespace singa {
namespace {

/// The most threads that are added.
constexpr int kMost = 16;

/// Whether the system lets this process have `count` more threads. GNU OpenMP does not ask: it ends
/// the process when it cannot start one.
bool MayStart(int count) {
  std::atomic<bool> over{false};
  std::array<std::thread, kMost> threads;
  int started = 0;
  try {
    for (; started < count; ++started)
      threads[static_cast<size_t>(started)] = std::thread([&over] { over.wait(false); });
  } catch (const std::exception&) {  // no thread, or no memory for it
  }
  over = true;
  over.notify_all();
  for (int i = 0; i < started; ++i) threads[static_cast<size_t>(i)].join();
  return started == count;
}

}  // namespace

namespace detail {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

MoreThreads::MoreThreads() {
  // Where there are many processors besides ours, the system finds a free one.
  const int more = std::max(2, omp_get_num_procs() - NumThreads() + 2);
  if (more > kMost) return;
  auto over = std::make_shared<std::atomic<bool>>(false);
  try {
    std::thread([more, over] {
      if (!MayStart(more - 1)) return;
      static std::atomic<int> begun{0};  // a region without work would start no threads
#pragma omp parallel num_threads(more)
      ++begun;
      over->wait(false);
    }).detach();
  } catch (const std::system_error&) {  // no thread is to be had
    return;
  }
  over_ = std::move(over);
}

MoreThreads::~MoreThreads() {
  if (!over_) return;
  *over_ = true;
  over_->notify_one();
}

}  // namespace detail

namespace {

/// Regions of a thread between two looks at the clock.
constexpr unsigned kRegions = 16;

/// How often a thread of this process has lost its core before it had to wait.
long LostCores() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_nivcsw;
}

/// Seconds for which the threads of this process could have run and had no core; 0 where the system
/// does not say it.
double SecondsWithoutCore() {
  DIR* threads = opendir("/proc/self/task");
  if (!threads) return 0;
  uint64_t nanoseconds = 0;
  while (const dirent* thread = readdir(threads)) {
    const std::string file = std::string(thread->d_name) + "/schedstat";
    const int descriptor = openat(dirfd(threads), file.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) continue;
    char text[80] = {};
    uint64_t ran = 0, waited = 0;
    if (read(descriptor, text, sizeof(text) - 1) > 0 &&
        std::sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &waited) == 2)
      nanoseconds += waited;
    close(descriptor);
  }
  closedir(threads);
  return static_cast<double>(nanoseconds) * 1e-9;
}

class Watch {
 public:
  void Look() {
    const double now = detail::Now();
    if (now < next_.load(std::memory_order_relaxed)) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock || now < policy_.next()) return;
    policy_.Look(now, LostCores(), SecondsWithoutCore);
    policy_.soon() ? void(more_.emplace()) : more_.reset();
    others_ = policy_.soon();
    next_ = policy_.next();
  }
  bool others() const { return others_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  detail::WaitPolicy policy_{detail::Now(), LostCores()};  // guarded by mutex_
  std::optional<detail::MoreThreads> more_;                // likewise
  std::atomic<double> next_{policy_.next()};
  std::atomic<bool> others_{false};
};

}  // namespace

bool WatchForOthers() {
  static Watch& watch = *new Watch;  // never destroyed: threads may compute until the end
  thread_local unsigned regions = 0;
  if (++regions % kRegions == 0) watch.Look();
  return watch.others();
}

}  // namespace singa
