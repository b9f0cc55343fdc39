#include "core/memory/memory_planner.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "singa/core/device.h"

namespace singa {
namespace {

/// True if the two are needed at the same step, or within `apart` steps of each other.
bool Meet(const Interval& a, const Interval& b, int apart = 0) {
  return a.first <= b.last + apart && b.first <= a.last + apart;
}

/// Offset of the smallest gap that holds `interval`. `placed` is sorted by offset.
size_t SmallestGap(const Interval& interval, std::span<const Interval* const> placed,
                   size_t alignment, int apart) {
  const size_t bytes = PlannedBytes(interval.bytes, alignment);
  size_t end = 0, best = 0, best_gap = SIZE_MAX;
  for (const Interval* other : placed) {
    if (!Meet(*other, interval, apart)) continue;
    if (other->offset > end && other->offset - end >= bytes && other->offset - end < best_gap) {
      best_gap = other->offset - end;
      best = end;
    }
    end = std::max(end, other->offset + PlannedBytes(other->bytes, alignment));
  }
  return best_gap == SIZE_MAX ? end : best;
}

/// Places the intervals in `order`, each in the smallest gap. Returns the total size. Keeps
/// intervals that share bytes `apart` steps apart as long as `limit` bytes suffice.
size_t PlaceInOrder(const std::vector<size_t>& order, std::vector<Interval>* intervals,
                    size_t alignment, int apart = 0, size_t limit = 0) {
  std::vector<const Interval*> placed;  // sorted by offset
  size_t total = 0;
  for (size_t index : order) {
    Interval& interval = (*intervals)[index];
    const size_t bytes = PlannedBytes(interval.bytes, alignment);
    interval.offset = SmallestGap(interval, placed, alignment, apart);
    if (apart > 0 && interval.offset + bytes > limit)
      interval.offset = SmallestGap(interval, placed, alignment, 0);
    total = std::max(total, interval.offset + bytes);
    const auto by_offset = [](const Interval* a, const Interval* b) {
      return a->offset < b->offset;
    };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), &interval, by_offset), &interval);
  }
  return total;
}

/// Indices of the intervals, largest first.
std::vector<size_t> BySize(std::span<const Interval> intervals) {
  std::vector<size_t> order(intervals.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return intervals[a].bytes > intervals[b].bytes; });
  return order;
}

/// A range of memory and its lifetime: a block, or several that reuse the same memory in turn.
struct Tenure {
  Interval interval;
  std::vector<BlockPtr> blocks;
};

bool IsWhole(const Tensor& t) {
  return t.layout() || (t.offset() == 0 && t.is_contiguous() &&
                        static_cast<size_t>(t.bytes()) == t.block()->size());
}

/// Alignment of the device on which all nodes run.
size_t AlignmentOf(std::span<const Node> nodes) {
  for (const Node& node : nodes)
    for (const Tensor& t : node.outputs)
      if (!t.empty()) return t.device()->alignment();
  return 1;
}

}  // namespace

size_t PlannedBytes(size_t bytes, size_t alignment) {
  return std::max((bytes + alignment - 1) / alignment, size_t{1}) * alignment;
}

const Tensor* TakenOver(const Node& node, size_t i) {
  const int k = node.plan->inplace_input(i);
  if (k < 0 || static_cast<size_t>(k) >= node.inputs.size()) return nullptr;
  const Tensor& input = node.inputs[static_cast<size_t>(k)];
  const Tensor& output = node.outputs[i];
  if (input.empty() || input.block() == output.block()) return nullptr;
  if (!IsWhole(input) || !IsWhole(output) || input.block()->size() != output.block()->size())
    return nullptr;
  const auto same = [&](const Tensor& t) { return t.block() == input.block(); };
  return std::count_if(node.inputs.begin(), node.inputs.end(), same) == 1 ? &input : nullptr;
}

size_t PlanOffsets(std::vector<Interval>* intervals, size_t alignment) {
  const auto& all = *intervals;
  const std::vector<size_t> by_size = BySize(all);
  std::vector<size_t> by_time(all.size());
  std::iota(by_time.begin(), by_time.end(), size_t{0});
  std::stable_sort(by_time.begin(), by_time.end(),
                   [&](size_t a, size_t b) { return all[a].first < all[b].first; });
  std::vector<Interval> other = all;
  const size_t total = PlaceInOrder(by_size, intervals, alignment);
  const size_t other_total = PlaceInOrder(by_time, &other, alignment);
  if (other_total >= total) return total;
  *intervals = std::move(other);
  return other_total;
}

size_t SpreadOffsets(std::vector<Interval>* intervals, size_t alignment, size_t bytes) {
  const size_t total = PlanOffsets(intervals, alignment);
  const size_t limit = std::max(total, bytes);
  const std::vector<size_t> by_size = BySize(*intervals);
  std::vector<Interval> spread = *intervals;
  for (int apart = kMostApart; apart > 0; apart /= 2) {
    const size_t spread_total = PlaceInOrder(by_size, &spread, alignment, apart, limit);
    if (spread_total > limit) continue;
    *intervals = std::move(spread);
    return spread_total;
  }
  return total;
}

size_t PeakBytes(std::span<const Interval> intervals, size_t alignment) {
  size_t peak = 0;
  for (const Interval& at : intervals) {  // the sum increases only where an interval begins
    size_t sum = 0;
    for (const Interval& other : intervals)
      if (other.first <= at.first && at.first <= other.last)
        sum += PlannedBytes(other.bytes, alignment);
    peak = std::max(peak, sum);
  }
  return peak;
}

SegmentMemory PlanSegment(std::span<const Node> nodes,
                          const std::function<bool(const Block*)>& internal,
                          std::span<const BlockPtr> lent, size_t spread) {
  // Reuse of memory depends on the last uses, so they are collected first.
  const int end = static_cast<int>(nodes.size());
  std::unordered_map<const Block*, int> last;
  for (int n = 0; n < end; ++n)
    for (const auto* tensors : {&nodes[n].inputs, &nodes[n].outputs})
      for (const Tensor& t : *tensors)
        if (!t.empty()) last[t.block().get()] = n;
  for (const BlockPtr& block : lent) last[block.get()] = end;

  SegmentMemory memory;
  std::vector<Tenure> tenures;
  std::unordered_map<const Block*, size_t> tenure_of;
  const auto begin_tenure = [&](const Tensor& t, int n) {
    const Block* block = t.block().get();
    if (!internal(block) || tenure_of.count(block)) return;
    tenure_of[block] = tenures.size();
    tenures.push_back({{block->size(), n, last[block]}, {t.block()}});
  };
  std::vector<size_t> workspace_tenures;
  for (int n = 0; n < end; ++n) {
    const Node& node = nodes[n];
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      const Tensor& output = node.outputs[i];
      if (output.empty()) continue;
      const Tensor* from = TakenOver(node, i);
      const auto held = from ? tenure_of.find(from->block().get()) : tenure_of.end();
      if (held != tenure_of.end() && last[from->block().get()] == n &&
          internal(output.block().get()) && !tenure_of.count(output.block().get()) &&
          tenures[held->second].interval.last == n) {
        Tenure& tenure = tenures[held->second];
        tenure.interval.last = last[output.block().get()];
        tenure.blocks.push_back(output.block());
        tenure_of[output.block().get()] = held->second;
        ++memory.in_place;
      } else {
        begin_tenure(output, n);
      }
    }
    // An input that no node wrote has undefined contents, but still needs memory.
    for (const Tensor& input : node.inputs)
      if (!input.empty()) begin_tenure(input, n);
    workspace_tenures.push_back(tenures.size());
    tenures.push_back({{node.plan->workspace_bytes(), n, n}, {}});
  }

  std::vector<Interval> intervals;
  std::vector<size_t> with_bytes;
  for (size_t i = 0; i < tenures.size(); ++i) {
    if (tenures[i].blocks.empty() && tenures[i].interval.bytes == 0) continue;
    intervals.push_back(tenures[i].interval);
    with_bytes.push_back(i);
  }
  const size_t alignment = AlignmentOf(nodes);
  memory.bytes = spread > 0 ? SpreadOffsets(&intervals, alignment, spread)
                            : PlanOffsets(&intervals, alignment);
  memory.peak = PeakBytes(intervals, alignment);
  for (size_t i = 0; i < intervals.size(); ++i)
    tenures[with_bytes[i]].interval.offset = intervals[i].offset;
  for (const Tenure& tenure : tenures)
    for (const BlockPtr& block : tenure.blocks)
      memory.blocks.push_back({block, tenure.interval.offset});
  for (size_t tenure : workspace_tenures)
    memory.workspaces.push_back(tenures[tenure].interval.offset);
  return memory;
}

}  // namespace singa
