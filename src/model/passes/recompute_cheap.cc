#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "model/passes/passes.h"
#include "model/passes/schedule.h"
#include "model/passes/temporaries.h"

namespace singa {
namespace {

/// The part of a step's time, by estimates, that second runs take without being asked for.
constexpr double kShare = 0.02;
/// Steps with fewer bytes of temporaries are left alone: their memory does not matter.
constexpr size_t kLarge = size_t{32} << 20;
/// A result is dropped only if it takes this part of the most bytes that a node needs.
constexpr double kWorthwhile = 1.0 / 1024;

/// The choice of what to drop in one segment. Times are twice the number of a node; one less is the
/// time right before the node, at which results that it needs are computed again.
class CheapRuns {
 public:
  CheapRuns(const Temporaries& temporaries, double time)
      : all_(temporaries),
        left_(time),
        live_(all_.nodes().size()),
        dropped_(all_.values().size()),
        runs_before_(all_.nodes().size()) {
    for (const Temporaries::Value& value : all_.values()) {
      std::vector<int>& uses = uses_.emplace_back();
      for (const int node : value.uses) uses.push_back(2 * node);
    }
    Count();
  }

  /// Drops results until that saves nothing, or takes too much time.
  void Choose() {
    while (true) {
      const auto most = std::max_element(live_.begin(), live_.end());
      if (most == live_.end()) return;
      const int at = static_cast<int>(most - live_.begin());
      int best = -1, best_next = 0;
      double best_price = std::numeric_limits<double>::infinity();
      for (int v = 0; v < static_cast<int>(all_.values().size()); ++v) {
        const auto& value = all_.value(v);
        if (static_cast<double>(value.bytes) < kWorthwhile * static_cast<double>(*most)) continue;
        const int next = CanBeDropped(v, at);
        if (next < 0) continue;
        const double price = TimeOf(v) / static_cast<double>(value.bytes);
        if (price >= best_price) continue;
        best = v;
        best_next = next;
        best_price = price;
      }
      if (best < 0) return;
      Drop(best, best_next);
    }
  }

  Schedule Runs() const {
    Schedule schedule;
    for (int n = 0; n < static_cast<int>(all_.nodes().size()); ++n) {
      for (const int v : runs_before_[index(n)])
        schedule.runs.push_back({all_.value(v).writer, true, {v}});
      schedule.runs.push_back({n, false, {}});
    }
    return schedule;
  }

 private:
  /// What is not there between the uses `last` and `next`.
  struct Gap {
    int last = 0, next = 0;
  };

  static size_t index(int i) { return static_cast<size_t>(i); }
  double TimeOf(int v) const { return all_.again(all_.value(v).writer)->work.time; }

  /// Adds up what is there at each node.
  void Count() {
    const int count = static_cast<int>(live_.size());
    for (int n = 0; n < count; ++n) live_[index(n)] += all_.work(n).workspace;
    for (const Temporaries::Value& value : all_.values()) {
      const int last = value.stays ? count - 1 : value.uses.back();
      for (int n = value.uses.front(); n <= last; ++n) live_[index(n)] += value.bytes;
    }
    for (int n = 0; n < count; ++n)
      for (const auto& [output, input] : all_.work(n).takes_over)
        if (all_.value(output).uses.front() == n && all_.value(input).uses.back() == n &&
            !all_.value(input).stays)
          live_[index(n)] -= all_.value(output).bytes;
  }

  /// The use before which `v` would be computed again if it were not there at node `at`; -1 if that
  /// cannot be done, or would take too much time.
  int CanBeDropped(int v, int at) const {
    const Temporaries::Value& value = all_.value(v);
    if (value.writer < 0 || value.stays || dropped_[index(v)].next > 0) return -1;
    const std::vector<int>& uses = uses_[index(v)];
    const auto next = std::upper_bound(uses.begin(), uses.end(), 2 * at);
    if (next == uses.begin() || next == uses.end() || *(next - 1) == 2 * at) return -1;
    // A second run needs it, before which there would have to be another one.
    if (*next % 2 != 0) return -1;
    const auto& again = all_.again(value.writer);
    if (again->node.multiply_adds > 0 || again->node.random >= 0 || again->until < *next / 2 ||
        TimeOf(v) > left_)
      return -1;
    for (const int in : again->work.reads) {
      const Gap& gap = dropped_[index(in)];
      const bool is_kept = all_.value(in).stays || uses_[index(in)].back() > *next - 1;
      if (!is_kept || (gap.last < *next - 1 && *next - 1 < gap.next)) return -1;
    }
    return *next;
  }

  void Drop(int v, int next) {
    const std::vector<int>& uses = uses_[index(v)];
    const int last = *(std::lower_bound(uses.begin(), uses.end(), next) - 1);
    dropped_[index(v)] = {last, next};
    left_ -= TimeOf(v);
    for (int n = last / 2 + 1; 2 * n < next; ++n) live_[index(n)] -= all_.value(v).bytes;
    for (const int in : all_.again(all_.value(v).writer)->work.reads) {
      std::vector<int>& needed = uses_[index(in)];
      needed.insert(std::upper_bound(needed.begin(), needed.end(), next - 1), next - 1);
    }
    runs_before_[index(next / 2)].push_back(v);
  }

  const Temporaries& all_;
  double left_;                                // time for second runs
  std::vector<size_t> live_;                   // bytes at each node
  std::vector<Gap> dropped_;                   // by value; next is 0 for what is not dropped
  std::vector<std::vector<int>> uses_;         // by value, those of second runs too
  std::vector<std::vector<int>> runs_before_;  // by node: the values to compute again
};

/// At most the bytes of all temporaries.
size_t BytesOf(const RecordedStep& step, const std::vector<Node>& nodes) {
  size_t bytes = 0;
  for (const Node& node : nodes)
    for (const Tensor& t : node.outputs)
      if (!t.empty() && (step.SlotOf(t.block().get()) < 0 || !t.block()->has_memory()))
        bytes += t.block()->size();
  return bytes;
}

/// The nodes, with second runs that take `share` of their time at most.
std::vector<Node> Recomputed(const RecordedStep& step, const std::vector<Node>& nodes,
                             double share) {
  const Temporaries temporaries(step, nodes);
  CheapRuns runs(temporaries, share * temporaries.time());
  runs.Choose();
  return runs.Runs().Nodes(temporaries);
}

}  // namespace

std::vector<Node> RecomputeCheap(const RecordedStep& step, std::vector<Node> nodes) {
  if (BytesOf(step, nodes) < kLarge) return nodes;
  return Recomputed(step, nodes, kShare);
}

std::vector<Node> RecomputeElementwise(const RecordedStep& step, std::vector<Node> nodes) {
  return Recomputed(step, nodes, 1);
}

}  // namespace singa
