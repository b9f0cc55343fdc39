#include "core/graph/difference.h"

#include <algorithm>
#include <bit>
#include <string_view>

namespace singa {
namespace {

using Slot = RecordedStep::Slot;

std::string Where(const Node& node, size_t index) {
  std::string text = "operation " + std::to_string(index) + ", " + node.op;
  return node.layer.empty() ? text : text + " in layer " + node.layer;
}

/// Two recordings of a step, compared tensor by tensor.
class Comparison {
 public:
  Comparison(const RecordedStep& a, const RecordedStep& b) : a_(a), b_(b) {}

  std::string Difference() const {
    for (const RecordedStep* step : {&a_, &b_})
      if (!step->obstacle().empty()) return step->obstacle();
    const size_t nodes = std::min(a_.nodes().size(), b_.nodes().size());
    for (size_t i = 0; i < nodes; ++i)
      if (std::string text = OfNodes(a_.nodes()[i], b_.nodes()[i]); !text.empty())
        return Where(b_.nodes()[i], i) + ": " + text;
    if (a_.nodes().size() != b_.nodes().size())
      return std::to_string(a_.nodes().size()) + " operations, then " +
             std::to_string(b_.nodes().size());
    for (size_t i = 0; i < a_.slots().size(); ++i)
      if (std::string text = OfSlots(a_.slots()[i], b_.slots()[i]); !text.empty()) return text;
    if (!a_.is_outline() && KeepsOfEachStep())
      return "the step keeps results that it does not return";
    return OfEnds();
  }

 private:
  std::string OfNodes(const Node& a, const Node& b) const {
    if (std::string_view(a.op) != b.op) return std::string("it was ") + a.op + " before";
    if (!a.plan->SameAs(*b.plan)) return "its shapes, types, layouts or implementation change";
    if (a.random != b.random) return "its random numbers come from elsewhere";
    if (!a.live != !b.live) return "its numbers come from elsewhere";
    for (size_t i = 0; i < a.scalars.v.size() && !b.live; ++i)
      // By their bits: -0 is not 0, and a NaN stays the same.
      if (std::bit_cast<uint64_t>(a.scalars.v[i]) != std::bit_cast<uint64_t>(b.scalars.v[i]))
        return "a number changes from step to step, " + std::to_string(a.scalars.v[i]) + " to " +
               std::to_string(b.scalars.v[i]);
    if (a.random < 0 && (a.scalars.seed != b.scalars.seed || a.scalars.offset != b.scalars.offset))
      return "its random numbers come from elsewhere";
    if (!SameTensors(a.inputs, b.inputs)) return "it reads other tensors";
    if (!SameTensors(a.outputs, b.outputs)) return "it writes other tensors";
    return "";
  }

  bool SameTensors(const std::vector<Tensor>& a, const std::vector<Tensor>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const Tensor& x, const Tensor& y) { return SameTensor(x, y); });
  }

  bool SameTensor(const Tensor& x, const Tensor& y) const {
    if (x.empty() || y.empty()) return x.empty() && y.empty();
    return a_.SlotOf(x.block().get()) == b_.SlotOf(y.block().get()) && x.shape() == y.shape() &&
           x.strides() == y.strides() && x.offset() == y.offset() && x.data_type() == y.data_type();
  }

  std::string OfSlots(const Slot& a, const Slot& b) const {
    if (a.input != b.input || a.made != b.made || a.internal != b.internal)
      return "what is kept of a step changes";
    // The host may have moved parameters, and what was lent to it, to another layout since.
    const bool has_size = b.made && !b.lent;
    if (!SameLayout(a.layout, b.layout) || (has_size && a.block->size() != b.block->size()))
      return "layouts change from step to step";
    if (b.input < 0 && !b.made && !a_.IsBlock(a.block, b.block)) {
      const Node* reader = nullptr;
      for (const Node& node : b_.nodes())
        for (const Tensor& t : node.inputs)
          if (!reader && !t.empty() && t.block() == b.block) reader = &node;
      return std::string("the step makes a tensor from data of the host") +
             (reader ? std::string(", for ") + reader->op : "") + "; hand it over as an argument";
    }
    return "";
  }

  /// Whether something still holds a result of the first recording that was not returned.
  bool KeepsOfEachStep() const {
    for (size_t i = 0; i < a_.slots().size(); ++i) {
      const Slot& slot = a_.slots()[i];
      const auto returned = [&](const Tensor& t) { return !t.empty() && t.block() == slot.block; };
      if (slot.made && !slot.internal && a_.IsHeld(static_cast<int>(i)) &&
          std::none_of(a_.outputs().begin(), a_.outputs().end(), returned))
        return true;
    }
    return false;
  }

  std::string OfEnds() const {
    const auto same_segment = [](const auto& x, const auto& y) {
      return x.nodes == y.nodes && x.draws == y.draws && x.lent == y.lent;
    };
    if (!std::equal(a_.segments().begin(), a_.segments().end(), b_.segments().begin(),
                    b_.segments().end(), same_segment))
      return "what the host does in the step changes";
    const auto same_output = [&](const Tensor& x, const Tensor& y) {
      if (x.empty() || y.empty()) return x.empty() && y.empty();
      const int slot = b_.SlotOf(y.block().get());
      if (slot >= 0) return SameTensor(x, y);
      return a_.IsBlock(x.block(), y.block()) && x.shape() == y.shape() &&
             x.strides() == y.strides() && x.offset() == y.offset();
    };
    if (!std::equal(a_.outputs().begin(), a_.outputs().end(), b_.outputs().begin(),
                    b_.outputs().end(), same_output))
      return "what the step returns changes";
    return "";
  }

  const RecordedStep& a_;
  const RecordedStep& b_;
};

}  // namespace

std::string Difference(const RecordedStep& first, const RecordedStep& second) {
  return Comparison(first, second).Difference();
}

}  // namespace singa
