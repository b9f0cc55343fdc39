#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/operation/optimizer/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// The conversions of gradients in one segment.
class GradientCasts {
 public:
  GradientCasts(const RecordedStep& step, std::vector<Node> nodes)
      : nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    std::vector<bool> gone(nodes_.size());
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const std::optional<size_t> last = LastReader(n);
      if (!last) continue;
      const Tensor from = nodes_[n].inputs[0], to = nodes_[n].outputs[0];
      for (size_t reader : uses_.readers(to))
        for (Tensor& t : nodes_[reader].inputs)
          if (!t.empty() && t.block() == to.block()) t = from;
      nodes_[*last].merged += 1 + nodes_[n].merged;
      gone[n] = true;
    }
    std::vector<Node> result;
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (!gone[n]) result.push_back(std::move(nodes_[n]));
    return result;
  }

 private:
  /// Whether `node` converts from 16 to 32 bits and leaves the elements in their order.
  bool Widens(const Node& node) const {
    if (node.spec_type || node.op != std::string_view("Copy") || node.inputs.size() != 1)
      return false;
    const Tensor &from = node.inputs[0], &to = node.outputs[0];
    if ((from.data_type() != kFloat16 && from.data_type() != kBFloat16) ||
        to.data_type() != kFloat32 || from.shape() != to.shape())
      return false;
    if (to.layout() || from.layout())
      return to.layout() && from.layout() &&
             SameLayout(from.layout()->WithType(kFloat32), to.layout());
    return from.is_contiguous() && to.is_contiguous();
  }

  /// Whether `node` reads input `i` in any floating-point type.
  static bool TakesAnyFloat(const Node& node, size_t i) {
    if (node.SpecAs<SumSquareSpec>()) return true;
    const auto* spec = node.SpecAs<OptimizerSpec>();
    if (!spec) return false;
    const size_t n = spec->count(node.inputs.size());
    return i >= n && i < 2 * n;
  }

  /// The last reader of node `n`'s result, if node `n` is a conversion and all readers can read the
  /// tensor before it.
  std::optional<size_t> LastReader(size_t n) const {
    if (!Widens(nodes_[n])) return {};
    const Tensor &from = nodes_[n].inputs[0], &to = nodes_[n].outputs[0];
    const std::vector<size_t>& readers = uses_.readers(to);
    if (!uses_.IsTemporary(to) || uses_.writers(to).size() != 1 || readers.empty()) return {};
    for (size_t reader : readers) {
      const std::vector<Tensor>& inputs = nodes_[reader].inputs;
      for (size_t i = 0; i < inputs.size(); ++i)
        if (!inputs[i].empty() && inputs[i].block() == to.block() &&
            !(TakesAnyFloat(nodes_[reader], i) && SameView(inputs[i], to)))
          return {};
    }
    // The tensor before the conversion must not change until then.
    for (size_t writer : uses_.writers(from))
      if (writer > n && writer <= readers.back()) return {};
    return readers.front() > n ? std::optional(readers.back()) : std::nullopt;
  }

  std::vector<Node> nodes_;
  DefUse uses_;
};

}  // namespace

std::vector<Node> SkipGradientCasts(const RecordedStep& step, std::vector<Node> nodes) {
  return GradientCasts(step, std::move(nodes)).Nodes();
}

}  // namespace singa
