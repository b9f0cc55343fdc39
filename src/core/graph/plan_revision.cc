#include "core/graph/plan_revision.h"

#include <atomic>

namespace singa {
namespace {

std::atomic<uint64_t> g_revision{0};

}  // namespace

uint64_t PlanRevision() { return g_revision.load(std::memory_order_relaxed); }
void NextPlanRevision() { g_revision.fetch_add(1, std::memory_order_relaxed); }

}  // namespace singa
