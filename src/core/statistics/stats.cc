#include "singa/core/stats.h"

#include <atomic>
#include <mutex>

#include "core/statistics/counted_reorder.h"
#include "core/statistics/profile.h"
#include "core/statistics/uncounted.h"

namespace singa {
namespace {

std::atomic<uint64_t> g_count{0};
std::atomic<uint64_t> g_bytes{0};
std::atomic<bool> g_record{false};
std::mutex g_mutex;
std::vector<ReorderRecord> g_records;  // guarded by g_mutex

}  // namespace

void CountedReorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                    const Shape& shape, DType dtype, const void* source, void* destination,
                    const char* reason) {
  const uint64_t bytes = static_cast<uint64_t>(shape.Count()) * SizeOf(dtype);
  CountReorders(1, bytes);
  const bool record = AreReordersRecorded(), profile = IsProfiling();
  double start = record || profile ? ProfileClock() : 0;
  const double uncounted = UncountedMilliseconds();
  const char* op = CurrentOp();
  Reorder(device, from, to, shape, dtype, source, destination);
  SetCurrentOp(op);  // finding a plan for the reorder may have changed it
  start += UncountedMilliseconds() - uncounted;  // without a check of the reorder
  if (profile)
    RecordProfile("Reorder", LayoutName(from) + " to " + LayoutName(to), shape.ToString(),
                  2 * bytes, start);
  if (!record) return;
  const double elapsed = ProfileClock() - start;
  std::lock_guard<std::mutex> lock(g_mutex);
  g_records.push_back(
      {op, CurrentLayer(), LayoutName(from), LayoutName(to), bytes, elapsed, reason});
}

void CountReorders(uint64_t count, uint64_t bytes) {
  if (IsUncounted()) return;
  g_count.fetch_add(count, std::memory_order_relaxed);
  g_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

bool AreReordersRecorded() { return g_record.load(std::memory_order_relaxed) && !IsUncounted(); }

ReorderStats GetReorderStats() { return {g_count.load(), g_bytes.load()}; }

void RecordReorders(bool enable) { g_record.store(enable); }

std::vector<ReorderRecord> TakeReorders() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return std::exchange(g_records, {});
}

}  // namespace singa
