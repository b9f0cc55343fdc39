#pragma once

#include <atomic>

namespace singa {

/// While it lives, this thread's work is in no statistics: its operations in no profile, its
/// reorders and look-ups of plans in no count, and its time in that of no reorder. It is for work
/// that the program has not asked for, such as checks of results. Memory is counted.
class UncountedScope {
 public:
  UncountedScope();
  ~UncountedScope();
  UncountedScope(const UncountedScope&) = delete;
  UncountedScope& operator=(const UncountedScope&) = delete;

  static bool IsOnThisThread();
  static std::atomic<int> on_all_threads;
};

/// Whether this thread is in such a scope. Takes one load where no thread is.
inline bool IsUncounted() {
  return UncountedScope::on_all_threads.load(std::memory_order_relaxed) > 0 &&
         UncountedScope::IsOnThisThread();
}
/// How long this thread has been in such scopes that have ended.
double UncountedMilliseconds();

}  // namespace singa
