#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "core/graph/recorded_step.h"

namespace singa {

/// Whether both are the same elements of the same memory, in the same shape.
inline bool SameView(const Tensor& a, const Tensor& b) {
  return a.block() == b.block() && a.shape() == b.shape() && a.strides() == b.strides() &&
         a.offset() == b.offset() && a.data_type() == b.data_type();
}

/// The nodes that write and read each block, by their indices. `nodes` must not change meanwhile.
class DefUse {
 public:
  DefUse(const RecordedStep& step, const std::vector<Node>& nodes) : step_(step), nodes_(nodes) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (const Tensor& t : nodes[n].inputs)
        if (!t.empty()) readers_[t.block().get()].push_back(n);
      for (const Tensor& t : nodes[n].outputs)
        if (!t.empty()) writers_[t.block().get()].push_back(n);
    }
  }

  const std::vector<size_t>& readers(const Tensor& t) const { return Find(readers_, t); }
  const std::vector<size_t>& writers(const Tensor& t) const { return Find(writers_, t); }
  /// Only nodes use it. Passes made the blocks that the step does not know.
  bool IsTemporary(const Tensor& t) const {
    const int slot = step_.SlotOf(t.block().get());
    if (slot < 0) return true;
    const RecordedStep::Slot& known = step_.slots()[static_cast<size_t>(slot)];
    return known.internal && !known.lent;
  }
  /// A parameter, or another tensor that outlives the step and that the step only reads.
  bool IsConstant(const Tensor& t) const {
    const int slot = step_.SlotOf(t.block().get());
    if (slot < 0 || !writers(t).empty()) return false;
    const RecordedStep::Slot& known = step_.slots()[static_cast<size_t>(slot)];
    return known.input < 0 && !known.made && !known.internal;
  }
  /// Whether only node `n` writes `t`, as a whole, and all reads come after it.
  bool IsResultOf(size_t n, const Tensor& t) const {
    const std::vector<size_t>& reading = readers(t);
    return writers(t) == std::vector<size_t>{n} && (t.layout() || t.is_contiguous()) &&
           (reading.empty() || reading.front() > n);
  }
  /// The only node that reads `y`, if it reads that exact view, and only once.
  std::optional<size_t> OnlyReader(const Tensor& y) const {
    const std::vector<size_t>& reading = readers(y);
    if (!IsTemporary(y) || writers(y).size() != 1 || reading.size() != 1) return {};
    const std::vector<Tensor>& inputs = nodes_[reading[0]].inputs;
    const bool as_it_is = std::any_of(inputs.begin(), inputs.end(), [&](const Tensor& t) {
      return !t.empty() && SameView(t, y);
    });
    return as_it_is ? std::optional(reading[0]) : std::nullopt;
  }

 private:
  using Map = std::unordered_map<const Block*, std::vector<size_t>>;
  static const std::vector<size_t>& Find(const Map& map, const Tensor& t) {
    static const std::vector<size_t> none;
    const auto found = map.find(t.block().get());
    return found == map.end() ? none : found->second;
  }

  const RecordedStep& step_;
  const std::vector<Node>& nodes_;
  Map readers_, writers_;
};

}  // namespace singa
