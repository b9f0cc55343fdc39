#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/tensor/element_copy.h"
#include "core/tensor/stored_size.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/random/spec.h"
#include "model/passes/chain_check.h"
#include "model/passes/chain_plan.h"
#include "model/passes/def_use.h"
#include "model/passes/merged_name.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// Most operations in one chain. Each may need a buffer, and all buffers have to stay in the cache.
constexpr size_t kMost = 12;

using Place = ChainPlan::Place;

/// How many elements an operation works on, and the layout of its arguments.
struct Form {
  int64_t elements = 0;
  LayoutPtr layout;
  bool operator==(const Form& other) const {
    return elements == other.elements && SameLayout(layout, other.layout);
  }
};

bool IsElementwise(const Node& node) {
  return node.SpecAs<UnarySpec>() || node.SpecAs<UnaryBackwardSpec>() ||
         node.SpecAs<BinarySpec>() || node.SpecAs<BinaryBackwardSpec>() ||
         node.SpecAs<WhereSpec>() || node.SpecAs<AxpySpec>() || node.SpecAs<DropoutSpec>() ||
         node.SpecAs<DropoutBackwardSpec>() || node.plan == CopyPlan();  // a copy converts types
}

/// Whether it is one element, broadcast.
bool IsScalar(const Tensor& t) { return !t.layout() && IsOneElement(t.shape(), t.strides()); }

/// Nothing if the arguments lie in different orders.
std::optional<Form> FormOf(const Node& node) {
  if (!IsElementwise(node) || node.live || node.plan->workspace_bytes() > 0) return {};
  const Tensor& y = node.outputs[0];
  const Form form{StoredSize(y), y.layout()};
  const auto fits = [&](const Tensor& t) {
    if (t.empty() || !SameLayout(t.layout(), form.layout)) return false;
    return form.layout ? t.data_type() == form.layout->dtype()
                       : t.is_contiguous() && t.size() == form.elements;
  };
  const bool all = std::all_of(node.outputs.begin(), node.outputs.end(), fits) &&
                   std::all_of(node.inputs.begin(), node.inputs.end(), [&](const Tensor& t) {
                     return fits(t) || (!t.empty() && IsScalar(t));
                   });
  return all && form.elements > 1 ? std::optional(form) : std::nullopt;
}

/// Whether both are the same elements of the same memory.
bool SameElements(const Tensor& a, const Tensor& b) {
  return a.block() == b.block() && a.offset() == b.offset() && a.data_type() == b.data_type() &&
         IsScalar(a) == IsScalar(b);
}

/// Makes the node of a chain.
class Chain {
 public:
  Chain(const DefUse& uses, const std::vector<Node>& nodes, size_t begin, size_t end, Form form)
      : uses_(uses), nodes_(nodes), begin_(begin), end_(end), form_(std::move(form)) {}

  Node Merged() {
    std::vector<const Node*> merged;
    std::vector<ChainPlan::Part> parts;
    for (size_t n = begin_; n < end_; ++n) {
      const Node& node = nodes_[n];
      merged.push_back(&node);
      ChainPlan::Part part{node.plan, node.scalars, node.random >= 0, {},
                           {},        node.op,      node.spec,        node.spec_type};
      for (const Tensor& t : node.inputs) part.inputs.push_back(Read(t));
      for (const Tensor& t : node.outputs) part.outputs.push_back(Written(t));
      if (part.random) {
        node_.random = node.random;
        node_.scalars = node.scalars;
      }
      parts.push_back(std::move(part));
      FreeBuffers(n);
    }
    node_.op = MergedOp(merged);
    node_.layer = MergedLayer(merged);
    for (const Node* part : merged) node_.merged += part->merged;
    node_.merged += static_cast<int>(merged.size()) - 1;
    node_.plan = std::make_shared<ChainPlan>(form_.elements, buffers_, std::move(parts));
    MakeChecked(&node_);
    return std::move(node_);
  }

 private:
  /// Whether only the chain reads `t`. Then `t` needs a buffer instead of memory.
  bool StaysInside(const Tensor& t) const {
    const std::vector<size_t>& readers = uses_.readers(t);
    return uses_.IsTemporary(t) && uses_.writers(t).size() == 1 &&
           std::all_of(readers.begin(), readers.end(),
                       [&](size_t reader) { return reader >= begin_ && reader < end_; });
  }

  bool IsWrittenHere(const Tensor& t) const {
    const std::vector<size_t>& writers = uses_.writers(t);
    return std::any_of(writers.begin(), writers.end(),
                       [&](size_t writer) { return writer >= begin_ && writer < end_; });
  }

  static size_t Find(std::vector<Tensor>* list, const Tensor& t) {
    const auto found = std::find_if(list->begin(), list->end(),
                                    [&](const Tensor& other) { return SameElements(other, t); });
    if (found != list->end()) return static_cast<size_t>(found - list->begin());
    list->push_back(t);
    return list->size() - 1;
  }

  ChainPlan::Operand Read(const Tensor& t) {
    for (const Buffer& buffer : live_)
      if (buffer.tensor.block() == t.block())
        return {Place::kBuffer, buffer.index, t.data_type(), false};
    if (!IsWrittenHere(t))
      return {Place::kInput, Find(&node_.inputs, t), t.data_type(), IsScalar(t)};
    // If this part reads it before the chain writes it, it is an input, too.
    const auto written = [&](const Tensor& other) { return SameElements(other, t); };
    if (std::none_of(node_.outputs.begin(), node_.outputs.end(), written)) Find(&node_.inputs, t);
    return {Place::kOutput, Find(&node_.outputs, t), t.data_type(), false};
  }

  ChainPlan::Operand Written(const Tensor& t) {
    if (!StaysInside(t)) return {Place::kOutput, Find(&node_.outputs, t), t.data_type(), false};
    size_t index = buffers_;
    if (free_.empty()) {
      ++buffers_;
    } else {
      index = free_.back();
      free_.pop_back();
    }
    live_.push_back({t, index});
    return {Place::kBuffer, index, t.data_type(), false};
  }

  /// Frees the buffers that nothing reads after node `n`.
  void FreeBuffers(size_t n) {
    const auto dead = [&](const Buffer& buffer) {
      const std::vector<size_t>& readers = uses_.readers(buffer.tensor);
      return readers.empty() || readers.back() <= n;
    };
    for (const Buffer& buffer : live_)
      if (dead(buffer)) free_.push_back(buffer.index);
    std::erase_if(live_, dead);
  }

  struct Buffer {
    Tensor tensor;
    size_t index;
  };

  const DefUse& uses_;
  const std::vector<Node>& nodes_;
  size_t begin_, end_;
  Form form_;
  Node node_;
  std::vector<Buffer> live_;
  std::vector<size_t> free_;
  size_t buffers_ = 0;
};

/// The chains of one segment.
class Grouping {
 public:
  Grouping(const RecordedStep& step, std::vector<Node> nodes)
      : nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    std::vector<Node> result;
    for (size_t n = 0; n < nodes_.size();) {
      const std::optional<Form> form = FormOf(nodes_[n]);
      size_t end = n + 1;
      while (form && end < nodes_.size() && end - n < kMost && Joins(n, end, *form)) ++end;
      if (end - n > 1)
        result.push_back(Chain(uses_, nodes_, n, end, *form).Merged());
      else
        result.push_back(nodes_[n]);
      n = end;
    }
    return result;
  }

 private:
  /// Whether node `end` may join the chain of nodes [begin, end), and reads something that they
  /// use.
  bool Joins(size_t begin, size_t end, const Form& form) const {
    const Node& node = nodes_[end];
    const std::optional<Form> own = FormOf(node);
    if (!own || !(*own == form)) return false;
    bool linked = false;
    for (size_t n = begin; n < end; ++n) {
      const Node& before = nodes_[n];
      if (node.random >= 0 && before.random >= 0) return false;
      for (const auto* list : {&before.inputs, &before.outputs})
        for (const Tensor& t : *list) {
          const bool is_written = list == &before.outputs;
          for (const Tensor& x : node.inputs) {
            if (x.block() != t.block()) continue;
            if (is_written && !SameElements(x, t)) return false;
            linked |= !IsScalar(x);
          }
          for (const Tensor& y : node.outputs)
            if (y.block() == t.block() && !SameElements(y, t)) return false;
        }
    }
    return linked;
  }

  std::vector<Node> nodes_;
  DefUse uses_;
};

}  // namespace

std::vector<Node> ChainElementwise(const RecordedStep& step, std::vector<Node> nodes) {
  return Grouping(step, std::move(nodes)).Nodes();
}

}  // namespace singa
