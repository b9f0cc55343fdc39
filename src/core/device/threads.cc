#include "singa/core/threads.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>

#include "core/device/quota.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

namespace singa {
namespace {

int AllowedCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

std::atomic<bool> forked{false};

std::atomic<int>& Threads() {
  static std::atomic<int> threads = [] {
    // A forked child does not have its parent's OpenMP threads; waiting for them would hang.
    pthread_atfork(nullptr, nullptr, [] {
      Threads().store(1);
      forked = true;
    });
    const int wanted = std::atoi(EnvironmentValue("OMP_NUM_THREADS").c_str());
    if (wanted >= 1 && wanted <= kMostThreads) return wanted;
    const double allowed = std::min<double>(AllowedCpus(), std::ceil(QuotaCpus()));
    return std::clamp(static_cast<int>(allowed), 1, kMostThreads);
  }();
  return threads;
}

}  // namespace

int NumThreads() { return Threads().load(std::memory_order_relaxed); }

void SetNumThreads(int threads) {
  Check(threads >= 1 && threads <= kMostThreads, "set_num_threads", "threads must be in [1, ",
        kMostThreads, "], got ", threads);
  std::atomic<int>& now = Threads();  // from here on, forks are noticed
  Check(threads == 1 || !forked, "set_num_threads", "a process that was forked computes with one ",
        "thread, got ", threads, "; start it with spawn");
  now.store(threads, std::memory_order_relaxed);
}

}  // namespace singa
