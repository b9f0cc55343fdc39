#include "model/passes/memory_limit.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include "core/memory/memory_planner.h"
#include "model/passes/schedule.h"
#include "singa/core/error.h"

namespace singa {
namespace {

constexpr DropRule kRules[] = {{0, false},  {0, true},  {0.5, false},
                               {0.5, true}, {1, false}, {1, true}};
/// Between the parts of an arena lie gaps. So often a schedule for a smaller budget is tried.
constexpr int kTries = 6;
/// The smallest limit that works is looked for to within this part of itself.
constexpr double kPrecision = 1.0 / 256;

/// Nodes that fit, and how they were found.
struct Solution {
  std::vector<Node> nodes;
  size_t arena = 0;
  double time = 0;  ///< of second runs
  MemoryLimit::Choice choice;
};

/// The search for a schedule of one segment.
class Search {
 public:
  Search(const RecordedStep& step, const std::vector<Node>& nodes)
      : step_(step), temporaries_(step, nodes), plain_(ArenaOf(nodes)) {}

  const Temporaries& temporaries() const { return temporaries_; }
  /// Bytes of the arena, and of what is prepared, if nothing is dropped.
  size_t plain() const { return plain_; }

  /// The schedule of the first rule, or of the best of all, whose arena has `limit` bytes at most.
  std::optional<Solution> Within(size_t limit, bool all_rules) const {
    std::optional<Solution> best;
    for (size_t rule = 0; rule < (all_rules ? std::size(kRules) : 1); ++rule) {
      size_t budget = limit;
      for (int i = 0; i < kTries; ++i) {
        std::optional<Solution> found =
            Try({budget, static_cast<int>(rule)}, best ? best->time : 0);
        if (!found) break;
        if (found->arena <= limit) {
          best = std::move(found);
          break;
        }
        const size_t less = std::max(found->arena - limit, limit / 200);
        if (less >= budget) break;
        budget -= less;
      }
    }
    return best;
  }

  /// The schedule of a choice, unless it takes `most` time or more (0: any time).
  std::optional<Solution> Try(const MemoryLimit::Choice& choice, double most) const {
    const DropRule& rule = kRules[choice.rule];
    const Schedule schedule = ScheduleWithin(choice.budget, temporaries_, rule);
    if (!schedule.fits() || (most > 0 && schedule.time >= most)) return {};
    Solution solution{schedule.Nodes(temporaries_), 0, schedule.time, choice};
    solution.arena = ArenaOf(solution.nodes);
    return solution;
  }

  /// The smallest limit for which Within finds a schedule.
  size_t Smallest() const {
    size_t low = 0, high = plain_;
    while (high - low > 1 &&
           static_cast<double>(high - low) > kPrecision * static_cast<double>(high)) {
      const size_t middle = low + (high - low) / 2;
      (Within(middle, false) ? high : low) = middle;
    }
    return high;
  }

 private:
  size_t ArenaOf(const std::vector<Node>& nodes) const {
    const SegmentMemory memory = PlanSegment(
        nodes,
        [&](const Block* block) {
          const int slot = step_.SlotOf(block);
          return slot < 0 ||
                 (step_.slots()[static_cast<size_t>(slot)].internal && !block->has_memory());
        },
        temporaries_.lent());
    return memory.bytes + temporaries_.prepared();
  }

  const RecordedStep& step_;
  const Temporaries temporaries_;
  const size_t plain_;
};

/// Bytes outside of the arena: what is expected, and what the step has used so far. The host
/// updates weights by the gradients that are `lent` to it.
size_t OutsideOf(const RecordedStep& step, const MemoryLimit& limit,
                 const std::vector<BlockPtr>& lent) {
  size_t gradients = 0;
  for (const BlockPtr& block : lent) gradients += block->size();
  size_t bytes = limit.missing * limit.weights;
  if (gradients > limit.weights) bytes += (1 + limit.states) * (gradients - limit.weights);
  std::unordered_set<const void*> counted;
  for (const auto& [block, size] : limit.expected)
    if (counted.insert(block).second) bytes += size;
  for (const RecordedStep::Slot& slot : step.slots())
    if (!slot.internal && counted.insert(slot.block.get()).second) bytes += slot.block->size();
  return bytes;
}

/// As Model.compile takes it, rounded up.
std::string Size(size_t bytes) {
  const bool is_large = bytes >= size_t{10} << 20;
  const double tenths = std::ceil(static_cast<double>(bytes) / (is_large ? 1 << 20 : 1 << 10) * 10);
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f %s", tenths / 10, is_large ? "MiB" : "KiB");
  return text;
}

}  // namespace

void MemoryLimit::Expect(const std::vector<Tensor>& weights, const std::vector<Tensor>& others,
                         int states, int missing) {
  expected.clear();
  for (const auto* tensors : {&others, &weights})
    for (const Tensor& t : *tensors)
      if (!t.empty()) expected.emplace_back(t.block().get(), t.block()->size());
  this->weights = 0;
  for (const Tensor& t : weights) this->weights += t.block()->size();
  this->states = static_cast<uint64_t>(states);
  this->missing = static_cast<uint64_t>(missing);
}

std::vector<Node> FitIntoLimit(const RecordedStep& step, std::vector<Node> nodes,
                               MemoryLimit& limit) {
  const size_t segment = step.segments().size();
  if (segment == 0) {
    limit.outside = limit.arena = limit.plain = limit.again = limit.multiply_adds = 0;
    limit.share = 0;
  }
  const Search search(step, nodes);
  limit.outside =
      std::max<uint64_t>(limit.outside, OutsideOf(step, limit, search.temporaries().lent()));
  limit.plain = std::max<uint64_t>(limit.plain, search.plain());
  if (limit.outside + search.plain() <= limit.bytes) {
    limit.arena = std::max<uint64_t>(limit.arena, search.plain());
    return nodes;
  }
  const size_t arena = limit.bytes > limit.outside ? limit.bytes - limit.outside : 0;
  std::optional<Solution> solution;
  if (segment < limit.choices.size() && limit.choices[segment].budget > 0)
    solution = search.Try(limit.choices[segment], 0);
  if (!solution || solution->arena > arena) solution = search.Within(arena, true);
  if (!solution) {
    const size_t smallest = search.Smallest();
    if (smallest > arena)
      throw OutOfMemory(detail::Message(
          "compile", "memory_limit is ", Size(limit.bytes), ", and the step needs ",
          Size(limit.outside + smallest), " at least: ", Size(limit.outside),
          " for parameters, the optimizer, inputs and results, and ", Size(smallest),
          " for temporaries, which take ", Size(search.plain()), " if none is computed again"));
    solution = search.Within(smallest, false);  // gaps in the arena may be smaller there
  }
  if (limit.choices.size() <= segment) limit.choices.resize(segment + 1);
  limit.choices[segment] = solution->choice;
  limit.arena = std::max<uint64_t>(limit.arena, solution->arena);
  limit.again += solution->nodes.size() - nodes.size();
  int64_t before = 0, after = 0;
  for (const Node& node : nodes) before += node.multiply_adds;
  for (const Node& node : solution->nodes) after += node.multiply_adds;
  limit.multiply_adds += static_cast<uint64_t>(after - before);
  limit.share += solution->time / search.temporaries().time();
  return std::move(solution->nodes);
}

}  // namespace singa
