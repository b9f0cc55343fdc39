#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "core/tensor/stored_size.h"
#include "model/operation/optimizer/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// Gradients of at least this many bytes are updated together, so small networks keep one update.
constexpr size_t kPart = size_t{4} << 20;

/// The updates of one segment, each in parts that run as soon as their gradients are there.
class EarlyUpdates {
 public:
  EarlyUpdates(const RecordedStep& step, std::vector<Node> nodes)
      : nodes_(std::move(nodes)), uses_(step, nodes_), after_(nodes_.size()) {}

  std::vector<Node> Nodes() {
    std::vector<Node> result;
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (const auto* spec = nodes_[n].SpecAs<OptimizerSpec>()) Divide(n, *spec);
    for (size_t n = 0; n < nodes_.size(); ++n) {
      if (!divided_.empty() && divided_.front() == n) {
        divided_.erase(divided_.begin());
      } else {
        result.push_back(std::move(nodes_[n]));
      }
      for (Node& part : after_[n]) result.push_back(std::move(part));
    }
    return result;
  }

 private:
  /// The last node before `n` that writes `t`, or, where node `n` writes it, reads it.
  size_t LastUse(const Tensor& t, size_t n, bool writes) const {
    size_t last = 0;
    const auto look = [&](const std::vector<size_t>& uses) {
      const auto next = std::lower_bound(uses.begin(), uses.end(), n);
      if (next != uses.begin()) last = std::max(last, *(next - 1));
    };
    look(uses_.writers(t));
    if (writes) look(uses_.readers(t));
    return last;
  }

  /// Divides node `n`, an update of parameters.
  void Divide(size_t n, const OptimizerSpec& spec) {
    const Node& update = nodes_[n];
    const size_t count = spec.count(update.inputs.size());
    const size_t tensors = 2 + static_cast<size_t>(spec.states);
    size_t conditions = 0;
    for (size_t i = tensors * count; i < update.inputs.size(); ++i)
      conditions = std::max(conditions, LastUse(update.inputs[i], n, false));
    std::vector<size_t> ready(count, conditions);
    for (size_t i = 0; i < count; ++i)
      for (size_t k = 0; k < tensors; ++k)
        ready[i] = std::max(ready[i], LastUse(update.inputs[k * count + i], n, k != 1));
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return ready[a] < ready[b]; });

    std::vector<std::pair<size_t, Node>> parts;  // with the node that each follows
    std::vector<size_t> members;
    size_t bytes = 0;
    for (size_t i : order) {
      members.push_back(i);
      bytes += StoredBytes(update.inputs[count + i]);
      if (bytes < kPart && i != order.back()) continue;
      parts.emplace_back(ready[i], Part(update, members, count, tensors));
      members.clear();
      bytes = 0;
    }
    if (parts.size() < 2 || parts.front().first + 1 >= n) return;
    parts.front().second.merged = update.merged;
    for (auto& [place, part] : parts) after_[place].push_back(std::move(part));
    divided_.push_back(n);
  }

  /// The update of these of `count` parameters, by the same plan: it does not depend on how many.
  static Node Part(const Node& update, const std::vector<size_t>& members, size_t count,
                   size_t tensors) {
    Node part = update;
    part.inputs.clear();
    part.outputs.clear();
    part.merged = 0;
    for (size_t k = 0; k < tensors; ++k)
      for (size_t i : members) part.inputs.push_back(update.inputs[k * count + i]);
    part.inputs.insert(part.inputs.end(),
                       update.inputs.begin() + static_cast<std::ptrdiff_t>(tensors * count),
                       update.inputs.end());
    for (size_t k = 0; k + 1 < tensors; ++k)
      for (size_t i : members) part.outputs.push_back(update.outputs[k * count + i]);
    return part;
  }

  std::vector<Node> nodes_;
  DefUse uses_;
  std::vector<std::vector<Node>> after_;  // parts of updates, by the node that they follow
  std::vector<size_t> divided_;           // updates that parts replace
};

}  // namespace

std::vector<Node> UpdateEarly(const RecordedStep& step, std::vector<Node> nodes) {
  return EarlyUpdates(step, std::move(nodes)).Nodes();
}

}  // namespace singa
