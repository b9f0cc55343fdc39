#include "core/graph/stream_schedule.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace singa {
namespace {

/// The last users of each byte.
class DefUse {
 public:
  /// Adds the steps that step `n` has to wait for to `after`.
  void Add(const ByteUse& use, size_t n, std::vector<size_t>* after) {
    if (use.bytes == 0) return;
    const auto begin = reinterpret_cast<uintptr_t>(use.data), end = begin + use.bytes;
    Split(begin);
    Split(end);
    for (auto it = stretches_.find(begin); it->first < end; ++it) {
      Stretch& stretch = it->second;
      if (stretch.writer && *stretch.writer != n) after->push_back(*stretch.writer);
      if (!use.writes) {
        stretch.readers.push_back(n);
        continue;
      }
      for (size_t reader : stretch.readers)
        if (reader != n) after->push_back(reader);
      stretch = {.writer = n, .readers = {}};
    }
  }

 private:
  struct Stretch {
    std::optional<size_t> writer;  ///< the last one
    std::vector<size_t> readers;   ///< after that writer
  };

  /// Makes a stretch begin at `place`.
  void Split(uintptr_t place) {
    const auto next = stretches_.lower_bound(place);
    if (next != stretches_.end() && next->first == place) return;
    stretches_.emplace_hint(next, place,
                            next == stretches_.begin() ? Stretch{} : std::prev(next)->second);
  }

  std::map<uintptr_t, Stretch> stretches_;  // by begin; each ends where the next one begins
};

}  // namespace

std::vector<std::vector<size_t>> Dependencies(std::span<const Step> steps) {
  std::vector<std::vector<size_t>> dependencies(steps.size());
  DefUse uses;
  for (size_t n = 0; n < steps.size(); ++n) {
    std::vector<size_t>& after = dependencies[n];
    for (const ByteUse& use : steps[n].uses) uses.Add(use, n, &after);
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
  }
  return dependencies;
}

StreamSchedule PlanStreams(std::span<const Step> steps, size_t most) {
  struct Place {
    size_t branch;
    size_t end;                 ///< time when it has run
    size_t depth;               ///< steps on the longest path to this one, including it
    std::vector<size_t> known;  ///< for each branch: how many of its steps have run by then
  };
  const std::vector<std::vector<size_t>> dependencies = Dependencies(steps);
  std::vector<std::vector<size_t>> branches(std::max<size_t>(most, 1));
  std::vector<Place> places;
  StreamSchedule plan;
  for (size_t n = 0; n < steps.size(); ++n) {
    std::vector<size_t> wanted = dependencies[n];
    size_t ready = 0;
    for (size_t d : wanted) ready = std::max(ready, places[d].end);
    const auto start = [&](size_t branch) {
      return branches[branch].empty() ? ready
                                      : std::max(ready, places[branches[branch].back()].end);
    };
    const auto continues = [&](size_t branch) {
      return !branches[branch].empty() &&
             std::binary_search(dependencies[n].begin(), dependencies[n].end(),
                                branches[branch].back());
    };
    size_t best = 0;
    for (size_t b = 1; b < branches.size() && !steps[n].fills; ++b)
      if (start(b) < start(best) || (start(b) == start(best) && continues(b) && !continues(best)))
        best = b;

    Place place{best, start(best) + 1, 1, std::vector<size_t>(branches.size())};
    if (!branches[best].empty() && !continues(best)) {
      wanted.push_back(branches[best].back());
      std::sort(wanted.begin(), wanted.end());
    }
    // The latest steps first: what they wait for needs no wait of its own.
    std::vector<size_t>& after = plan.after.emplace_back();
    for (auto it = wanted.rbegin(); it != wanted.rend(); ++it) {
      const Place& other = places[*it];
      if (place.known[other.branch] >= other.known[other.branch]) continue;
      after.push_back(*it);
      place.depth = std::max(place.depth, other.depth + 1);
      for (size_t b = 0; b < branches.size(); ++b)
        place.known[b] = std::max(place.known[b], other.known[b]);
    }
    std::reverse(after.begin(), after.end());
    branches[best].push_back(n);
    place.known[best] = branches[best].size();
    plan.longest = std::max(plan.longest, place.depth);
    places.push_back(std::move(place));
  }
  plan.count = static_cast<size_t>(
      std::count_if(branches.begin(), branches.end(), [](const auto& b) { return !b.empty(); }));
  return plan;
}

}  // namespace singa
