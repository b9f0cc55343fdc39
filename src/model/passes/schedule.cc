#include "model/passes/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

namespace singa {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
/// A result is not dropped if more nodes than this would have to run again for it.
constexpr int kLongest = 64;
/// Schedules in which second runs take more than this part of the step are given up.
constexpr double kMostTime = 4;

/// The nodes of a segment in turn, with what is in memory at each.
class Simulation {
 public:
  Simulation(size_t budget, const Temporaries& temporaries, const DropRule& rule)
      : budget_(budget),
        all_(temporaries),
        rule_(rule),
        is_there_(all_.values().size()),
        entered_(all_.values().size()),
        alone_(all_.values().size(), kNever),
        pins_(all_.values().size()),
        next_(all_.values().size()),
        seen_(all_.nodes().size()) {
    for (size_t v = 0; v < alone_.size(); ++v) {
      const Temporaries::Value& each = all_.values()[v];
      if (each.writer < 0 || each.bytes == 0) continue;
      if (const auto& again = all_.again(each.writer))
        alone_[v] = again->work.time / static_cast<double>(each.bytes);
    }
    least_ = alone_;
  }

  Schedule Run() {
    used_ = all_.prepared();
    const int count = static_cast<int>(all_.nodes().size());
    for (now_ = 0; now_ < count; ++now_)
      if (!RunNode()) {
        schedule_.blocked = now_;
        break;
      }
    return std::move(schedule_);
  }

 private:
  const Temporaries::Value& value(int v) const { return all_.value(v); }
  size_t index(int v) const { return static_cast<size_t>(v); }

  /// The node that uses the value next; the number of nodes if none does.
  int NextUse(int v) const {
    const std::vector<int>& uses = value(v).uses;
    return next_[index(v)] < uses.size() ? uses[next_[index(v)]]
                                         : static_cast<int>(all_.nodes().size());
  }
  bool IsDone(int v) const {
    return next_[index(v)] == value(v).uses.size() && !value(v).stays && pins_[index(v)] == 0;
  }

  using Entry = std::tuple<double, int, int>;
  Entry EntryOf(int v) const { return {least_[index(v)], entered_[index(v)], v}; }
  void SetLeast(int v, double price) {
    if (price == least_[index(v)]) return;
    there_.erase(EntryOf(v));
    least_[index(v)] = price;
    there_.insert(EntryOf(v));
  }

  void Enter(int v) {
    if (std::exchange(is_there_[index(v)], char{1})) return;
    entered_[index(v)] = ++entries_;
    least_[index(v)] = alone_[index(v)];
    there_.insert(EntryOf(v));
    used_ += value(v).bytes;
  }
  void Leave(int v) {
    if (!std::exchange(is_there_[index(v)], char{0})) return;
    there_.erase(EntryOf(v));
    used_ -= value(v).bytes;
  }
  void Unpin(const std::vector<int>& values) {
    for (int v : values) {
      --pins_[index(v)];
      if (IsDone(v)) Leave(v);
    }
  }

  bool RunNode() {
    const Temporaries::Work& work = all_.work(now_);
    if (!Gather(work.reads)) return false;
    for (int v : work.makes) ++pins_[index(v)];
    size_t bytes = work.workspace;
    for (const auto* values : {&work.reads, &work.makes})
      for (int v : *values)
        if (!is_there_[index(v)]) bytes += value(v).bytes;
    for (const auto& [output, input] : work.takes_over)
      if (!is_there_[index(output)] && value(input).uses.back() == now_ && !value(input).stays)
        bytes -= value(output).bytes;
    if (!MakeRoom(bytes)) return false;
    for (const auto* values : {&work.reads, &work.makes})
      for (int v : *values) {
        Enter(v);
        if (NextUse(v) == now_) ++next_[index(v)];
      }
    Unpin(work.reads);
    Unpin(work.makes);
    schedule_.runs.push_back({now_, false, {}});
    return true;
  }

  /// Has these values there, and pins them. Returns false if there is no room. What is there is
  /// pinned last: while others are computed again it may be dropped, since they may need as much.
  bool Gather(const std::vector<int>& values) {
    std::vector<int> restored;
    const auto missing = [&](int v) {
      // What no node has written is there from its first use on.
      return !is_there_[index(v)] && value(v).uses.front() < now_;
    };
    for (auto v = values.begin(); v != values.end();) {
      v = std::find_if(values.begin(), values.end(), missing);
      if (v == values.end()) break;
      if (!Restore(*v)) return false;
      ++pins_[index(*v)];
      restored.push_back(*v);
    }
    for (int v : values)
      if (std::find(restored.begin(), restored.end(), v) == restored.end()) ++pins_[index(v)];
    return true;
  }

  /// Computes a value again. Returns false if there is no room.
  bool Restore(int v) {
    const int writer = value(v).writer;
    if (writer < 0) return false;
    const auto& again = all_.again(writer);
    if (again->until < now_) return false;
    const Temporaries::Work& work = again->work;
    schedule_.time += work.time;
    if (schedule_.time > kMostTime * all_.time()) return false;
    if (!Gather(work.reads)) return false;
    size_t bytes = work.workspace;
    for (int out : work.makes) bytes += value(out).bytes;
    if (!MakeRoom(bytes)) return false;
    Schedule::Run run{writer, true, {}};
    for (int out : work.makes) {
      if (is_there_[index(out)] || (out != v && IsDone(out))) continue;
      Enter(out);
      LowerPricesBehind(out);
      run.kept.push_back(out);
    }
    Unpin(work.reads);
    schedule_.runs.push_back(std::move(run));
    return true;
  }

  /// How much less it counts to compute again what is used after so many nodes.
  double Patience(int nodes) const {
    if (rule_.patience == 0) return 1;
    return rule_.patience == 1 ? nodes : std::pow(nodes, rule_.patience);
  }

  /// Drops results until so many bytes more fit into the budget.
  bool MakeRoom(size_t bytes) {
    while (used_ + bytes > budget_) {
      int least = -1;
      double least_score = kNever;
      const double most_patience = Patience(static_cast<int>(all_.nodes().size()) - now_);
      // Few prices are looked for, since others cannot be less.
      for (auto entry = there_.begin(); entry != there_.end();) {
        const auto [at_least, order, v] = *entry++;
        if (at_least / most_patience >= least_score) break;
        if (pins_[index(v)] > 0) continue;
        const int next = NextUse(v);
        const double patience = Patience(next - now_), bytes = static_cast<double>(value(v).bytes);
        if (at_least / patience >= least_score) continue;
        const double price = Price(v, next);
        SetLeast(v, price / bytes);
        const double all = rule_.counts_followers ? price + PriceOfFollowers(v) : price;
        const double score = all / bytes / patience;
        if (score < least_score) {
          least = v;
          least_score = score;
        }
      }
      if (least < 0) {
        schedule_.needed = used_ + bytes;
        return false;
      }
      Leave(least);
    }
    return true;
  }

  /// Whether the value is there now, and is not dropped for good before node `at`.
  bool IsThere(int v, int at) const {
    return is_there_[index(v)] && (value(v).stays || value(v).uses.back() >= at);
  }

  /// Time to compute value `v` again at node `at`, and what is needed for that and will not be
  /// there.
  double Price(int v, int at) {
    ++looks_;
    double price = 0;
    int count = 0;
    open_.assign(1, value(v).writer);
    while (!open_.empty()) {
      const int node = open_.back();
      open_.pop_back();
      if (std::exchange(seen_[index(node)], looks_) == looks_) continue;
      const auto& again = all_.again(node);
      if (!again || again->until < at || ++count > kLongest) return kNever;
      price += again->work.time;
      for (int in : again->work.reads) {
        if (IsThere(in, at)) continue;
        if (value(in).writer < 0) return kNever;
        open_.push_back(value(in).writer);
      }
    }
    return price;
  }

  /// Forgets the prices of what `v` is needed for, at once or by way of others, since `v` is there
  /// again. All other prices only rise: what is dropped, and later uses, add to them.
  void LowerPricesBehind(int v) {
    ++looks_;
    open_ = all_.followers(v);
    for (int length = 0; !open_.empty() && length < kLongest; ++length) {
      next_open_.clear();
      for (int node : open_) {
        if (node >= now_ || std::exchange(seen_[index(node)], looks_) == looks_) continue;
        for (int out : all_.again(node)->work.makes) {
          if (is_there_[index(out)]) SetLeast(out, alone_[index(out)]);
          const std::vector<int>& followers = all_.followers(out);
          next_open_.insert(next_open_.end(), followers.begin(), followers.end());
        }
      }
      open_.swap(next_open_);
    }
  }

  /// Time to compute again what has been dropped and follows from `v`.
  double PriceOfFollowers(int v) {
    double price = 0;
    open_ = all_.followers(v);
    for (int count = 0; !open_.empty() && count < kLongest;) {
      const int node = open_.back();
      open_.pop_back();
      if (std::exchange(seen_[index(node)], looks_) == looks_) continue;
      for (int out : all_.again(node)->work.makes) {
        if (is_there_[index(out)] || NextUse(out) == static_cast<int>(all_.nodes().size()) ||
            value(out).uses.front() >= now_)
          continue;
        price += all_.again(node)->work.time;
        ++count;
        const std::vector<int>& next = all_.followers(out);
        open_.insert(open_.end(), next.begin(), next.end());
        break;
      }
    }
    return price;
  }

  const size_t budget_;
  const Temporaries& all_;
  const DropRule rule_;
  Schedule schedule_;
  int now_ = 0;                 // the node that runs next
  size_t used_ = 0;             // bytes
  std::vector<char> is_there_;  // by value
  std::set<Entry> there_;
  std::vector<int> entered_;   // by value: its turn among those that came
  int entries_ = 0;            // how many came
  std::vector<double> alone_;  // by value: time of its writer per byte; kNever: it cannot run again
  std::vector<double> least_;  // by value: Price per byte, or less
  std::vector<int> pins_;      // how many runs that have begun need the value
  std::vector<size_t> next_;   // how many of its uses are over
  int looks_ = 0;              // calls of Price
  std::vector<int> seen_;      // the last look at each node
  std::vector<int> open_, next_open_;
};

}  // namespace

Schedule ScheduleWithin(size_t budget, const Temporaries& temporaries, const DropRule& rule) {
  return Simulation(budget, temporaries, rule).Run();
}

std::vector<Node> Schedule::Nodes(const Temporaries& temporaries) const {
  std::vector<BlockPtr> now;
  for (const Temporaries::Value& value : temporaries.values()) now.push_back(value.block);
  const auto replace = [&](Tensor* t) {
    if (const int v = temporaries.ValueOf(*t); v >= 0) *t = t->On(now[static_cast<size_t>(v)]);
  };
  std::vector<Node> result;
  for (const Run& run : runs) {
    Node node = run.again ? temporaries.again(run.node)->node
                          : temporaries.nodes()[static_cast<size_t>(run.node)];
    for (Tensor& t : node.inputs) replace(&t);
    if (run.again) {
      std::vector<std::pair<int, BlockPtr>> made;
      for (Tensor& t : node.outputs) {
        const int v = temporaries.ValueOf(t);
        if (v < 0) continue;  // not given
        auto place = std::find_if(made.begin(), made.end(),
                                  [&](const auto& each) { return each.first == v; });
        if (place == made.end()) {
          const auto block =
              std::make_shared<Block>(t.device(), nullptr, t.block()->size(), nullptr);
          block->set_layout(t.layout());
          place = made.emplace(made.end(), v, block);
        }
        t = t.On(place->second);
      }
      for (const auto& [v, block] : made)
        if (std::find(run.kept.begin(), run.kept.end(), v) != run.kept.end())
          now[static_cast<size_t>(v)] = block;
    } else {
      for (Tensor& t : node.outputs) replace(&t);
    }
    result.push_back(std::move(node));
  }
  return result;
}

}  // namespace singa
