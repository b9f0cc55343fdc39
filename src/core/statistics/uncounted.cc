#include "core/statistics/uncounted.h"

#include "core/statistics/profile.h"

namespace singa {
namespace {

thread_local int t_scopes = 0;
thread_local double t_start = 0;  // of the outermost scope
thread_local double t_milliseconds = 0;

}  // namespace

std::atomic<int> UncountedScope::on_all_threads{0};

UncountedScope::UncountedScope() {
  on_all_threads.fetch_add(1, std::memory_order_relaxed);
  if (t_scopes++ == 0) t_start = ProfileClock();
}
UncountedScope::~UncountedScope() {
  on_all_threads.fetch_sub(1, std::memory_order_relaxed);
  if (--t_scopes == 0) t_milliseconds += ProfileClock() - t_start;
}

bool UncountedScope::IsOnThisThread() { return t_scopes > 0; }

double UncountedMilliseconds() { return t_milliseconds; }

}  // namespace singa
