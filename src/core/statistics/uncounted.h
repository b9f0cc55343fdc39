#pragma once

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
};

/// Whether this thread is in such a scope.
bool IsUncounted();
/// How long this thread has been in such scopes that have ended.
double UncountedMilliseconds();

}  // namespace singa
