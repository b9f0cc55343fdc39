#include "core/device/parallel.h"

#include <omp.h>

#include <atomic>
#include <exception>
#include <limits>

#include "core/device/waiting.h"
#include "singa/core/error.h"
#include "singa/core/threads.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace singa {
namespace {

// The thread sanitizer does not see libgomp's synchronisation. These calls tell it that the fork
// happens before all threads' work, and all of that before the join. RunItems is not instrumented,
// because the way in which OpenMP passes variables to its threads would be reported, too.
#ifdef __SANITIZE_THREAD__
#define SINGA_NOT_BY_TSAN __attribute__((no_sanitize("thread")))
void Release(const void* sync) { __tsan_release(const_cast<void*>(sync)); }
void Acquire(const void* sync) { __tsan_acquire(const_cast<void*>(sync)); }
#else
#define SINGA_NOT_BY_TSAN
void Release(const void*) {}
void Acquire(const void*) {}
#endif

/// The items that are left of a thread's share: the end, and in the low half the beginning.
struct alignas(64) Share {
  std::atomic<uint64_t> left;
};

constexpr uint64_t kOne = 1, kOneOfEnd = uint64_t{1} << 32;

}  // namespace

/// The shares of a loop.
class Shares {
 public:
  /// `memory` has a place for each thread.
  Shares(Share* memory, int64_t n, int64_t threads, Order order)
      : shares_(memory), threads_(threads), order_(order) {
    for (int64_t i = 0; i < threads; ++i)
      shares_[i].left.store(static_cast<uint64_t>(n * (i + 1) / threads) << 32 |
                                static_cast<uint64_t>(n * i / threads),
                            std::memory_order_relaxed);
  }

  static Items All(int64_t n) { return Items(n); }
  Items Of(int64_t thread) { return Items(this, thread); }

  int64_t Take(int64_t thread) {
    int64_t item = TakeOf(thread, order_ == Order::kForward);
    // Some others, of which each share has that many: to ask all would take long where there are
    // many threads.
    for (int64_t i = 1; item < 0 && i < threads_; i *= 2)
      item = TakeOf((thread + i) % threads_, order_ != Order::kForward);
    if (thread == 0 && item >= 0) ++taken_by_first_;
    return item;
  }
  /// How many items thread 0 has taken; for this thread.
  int64_t taken_by_first() const { return taken_by_first_; }

 private:
  int64_t TakeOf(int64_t thread, bool front) {
    std::atomic<uint64_t>& left = shares_[thread].left;
    uint64_t now = left.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t begin = now & (kOneOfEnd - 1), end = now >> 32;
      if (begin >= end) return -1;
      // Only the number of the item passes between threads here, so no order is needed.
      if (left.compare_exchange_weak(now, front ? now + kOne : now - kOneOfEnd,
                                     std::memory_order_relaxed))
        return static_cast<int64_t>(front ? begin : end - 1);
    }
  }

  Share* shares_;
  int64_t threads_;
  Order order_;
  alignas(64) int64_t taken_by_first_ = 0;  // not beside what other threads read
};

int64_t Items::TakeShared() { return shares_->Take(thread_); }

namespace detail {
namespace {

/// Whether the caller is in a parallel region, also in one of a single thread: OpenMP starts no
/// other where OMP_DYNAMIC or OMP_THREAD_LIMIT say so. Its share lies in the caller's memory.
bool InLoop() { return omp_get_level() > 0; }

/// Memory for the shares of one loop at a time of the calling thread.
Share* MemoryForShares(int64_t threads) {
  thread_local std::unique_ptr<Share[]> memory;
  thread_local int64_t size = 0;
  if (size < threads) {
    memory = std::make_unique<Share[]>(static_cast<size_t>(threads));
    size = threads;
  }
  return memory.get();
}

}  // namespace

int64_t CountThreads(int64_t n, int64_t grain) {
  const int64_t worth = n / std::max<int64_t>(grain, 1);
  if (worth <= 1 || InLoop()) return 1;
  return std::min<int64_t>(worth, NumThreads());
}

SINGA_NOT_BY_TSAN
void RunItems(int64_t n, int64_t threads, Order order, void (*run)(const void*, Items&),
              const void* context) {
  if (n <= 0) return;
  Check(n <= std::numeric_limits<uint32_t>::max(), "parallel loop", "too many items: ", n);
  threads = std::min<int64_t>({n, threads, NumThreads()});
  const bool several = threads > 1 && !InLoop();
  const bool others = several && WatchForOthers();
  thread_local AlonePolicy alone;
  if (!several || (others && alone.Ask())) {
    Items items = Shares::All(n);
    run(context, items);
    return;
  }
  Shares shares(MemoryForShares(threads), n, threads, order);
  std::exception_ptr error;  // exceptions must not leave an OpenMP region
  const double start = others ? Now() : 0;
  double own = 0;  // seconds of the caller's items
  const char fork = 0, join = 0;
  Release(&fork);
#pragma omp parallel num_threads(static_cast <int>(threads))
  {
    Acquire(&fork);
    try {
      // OpenMP may start fewer threads than it was asked for.
      for (int64_t thread = omp_get_thread_num(); thread < threads;
           thread += omp_get_num_threads()) {
        Items items = shares.Of(thread);
        run(context, items);
      }
      if (others && omp_get_thread_num() == 0) own = Now() - start;
    } catch (...) {
#pragma omp critical(singa_run_items)
      if (!error) error = std::current_exception();
    }
    Release(&join);
  }
  Acquire(&join);
  if (error) std::rethrow_exception(error);
  const auto taken = static_cast<double>(shares.taken_by_first());
  if (others && taken > 0) alone.Add(Now() - start, own, taken / static_cast<double>(n));
}

}  // namespace detail
}  // namespace singa
