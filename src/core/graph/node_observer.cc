#include "core/graph/node_observer.h"

#include <atomic>

namespace singa {
namespace {

std::atomic<const NodeObserver*> g_observer{nullptr};
thread_local int g_unobserved = 0;  // scopes

}  // namespace

void SetNodeObserver(const NodeObserver* observer) {
  g_observer.store(observer, std::memory_order_release);
}

UnobservedScope::UnobservedScope() { ++g_unobserved; }
UnobservedScope::~UnobservedScope() { --g_unobserved; }

bool IsUnobserved() { return g_unobserved > 0; }

const NodeObserver* InstalledObserver() {
  return g_unobserved ? nullptr : g_observer.load(std::memory_order_acquire);
}

const NodeObserver* WatchingObserver() {
  const NodeObserver* observer = g_observer.load(std::memory_order_acquire);
  return observer && observer->watching() ? observer : nullptr;
}

}  // namespace singa
