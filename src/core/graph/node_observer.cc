#include "core/graph/node_observer.h"

#include <atomic>

namespace singa {
namespace {

std::atomic<const NodeObserver*> g_observer{nullptr};

}  // namespace

void SetNodeObserver(const NodeObserver* observer) {
  g_observer.store(observer, std::memory_order_release);
}

const NodeObserver* InstalledObserver() { return g_observer.load(std::memory_order_acquire); }

const NodeObserver* WatchingObserver() {
  const NodeObserver* observer = InstalledObserver();
  return observer && observer->watching() ? observer : nullptr;
}

}  // namespace singa
