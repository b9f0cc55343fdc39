#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <vector>

#include "singa/core/graph.h"

namespace singa {

inline bool SameView(const Tensor& a, const Tensor& b) {
  return a.block() == b.block() && a.shape() == b.shape() && a.strides() == b.strides() &&
         a.offset() == b.offset() && a.data_type() == b.data_type();
}

/// Who writes and reads each block, of nodes that stay where they are.
class Uses {
 public:
  Uses(const Recording& recording, const std::vector<Node>& nodes)
      : recording_(recording), nodes_(nodes) {
    for (size_t n = 0; n < nodes.size(); ++n) {
      for (const Tensor& t : nodes[n].inputs)
        if (!t.empty()) readers_[t.block().get()].push_back(n);
      for (const Tensor& t : nodes[n].outputs)
        if (!t.empty()) writers_[t.block().get()].push_back(n);
    }
  }

  const std::vector<size_t>& readers(const Tensor& t) const { return Find(readers_, t); }
  const std::vector<size_t>& writers(const Tensor& t) const { return Find(writers_, t); }
  /// Nobody but nodes sees it. Blocks that the recording does not know are the rewriting's own.
  bool IsTemporary(const Tensor& t) const {
    const int slot = recording_.SlotOf(t.block().get());
    if (slot < 0) return true;
    const Recording::Slot& known = recording_.slots()[static_cast<size_t>(slot)];
    return known.internal && !known.lent;
  }
  /// A parameter, or another tensor that lives on and that the step only reads.
  bool IsConstant(const Tensor& t) const {
    const int slot = recording_.SlotOf(t.block().get());
    if (slot < 0 || !writers(t).empty()) return false;
    const Recording::Slot& known = recording_.slots()[static_cast<size_t>(slot)];
    return known.input < 0 && !known.made && !known.internal;
  }
  /// The node that alone reads `y`, once, whole and as it is.
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

  const Recording& recording_;
  const std::vector<Node>& nodes_;
  Map readers_, writers_;
};

}  // namespace singa
