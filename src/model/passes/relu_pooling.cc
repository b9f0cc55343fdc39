#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/operation/elementwise/spec.h"
#include "model/operation/pooling/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/node_spec.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// The ReLUs of one segment with maximum pooling behind them.
class ReluInFront {
 public:
  ReluInFront(const RecordedStep& step, std::vector<Node> nodes)
      : nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    const size_t count = nodes_.size();
    for (size_t n = 0; n < count; ++n)
      if (const auto* pooling = nodes_[n].SpecAs<PoolingBackwardSpec>()) Swap(n, *pooling);
    std::vector<Node> result;
    for (size_t n = 0; n < count; ++n) {
      if (gone_.count(n)) continue;
      if (const auto before = before_.find(n); before != before_.end())
        result.push_back(std::move(before->second));
      result.push_back(std::move(nodes_[n]));
    }
    return result;
  }

 private:
  /// Applies ReLU's gradient before pooling's gradient `n`. Only the maximum of a window gets a
  /// gradient, and its sign is that of the pooling's result.
  void Swap(size_t n, const PoolingBackwardSpec& spec) {
    Node& node = nodes_[n];
    if (!spec.saved) return;
    const Tensor x = std::exchange(node.inputs[1], Tensor());  // the saved positions are enough
    const Tensor dy = node.inputs[0];
    const std::optional<size_t> next = uses_.OnlyReader(node.outputs[0]);
    if (!next) return;
    const Node& relu = nodes_[*next];
    const auto* unary = relu.SpecAs<UnaryBackwardSpec>();
    if (!unary || unary->kind != UnaryOp::kRelu || !SameView(relu.inputs[1], x) ||
        !uses_.IsResultOf(*next, relu.outputs[0]))
      return;
    const std::optional<Tensor> y = PoolingOf(x, node.inputs[2]);
    if (!y || y->shape() != dy.shape() || !SameLayout(y->layout(), dy.layout())) return;
    if (!dy.layout() && !(dy.is_contiguous() && y->is_contiguous())) return;

    Node first = relu;
    const Tensor passed = TemporaryLike(dy);
    first.inputs = {dy, *y};
    first.outputs = {passed};
    node.inputs[0] = passed;
    node.outputs = relu.outputs;
    before_.emplace(n, std::move(first));
    gone_.insert(*next);
  }

  /// The result of the maximum pooling of `x` that saved `positions`.
  std::optional<Tensor> PoolingOf(const Tensor& x, const Tensor& positions) const {
    const std::vector<size_t>& writers = uses_.writers(positions);
    if (writers.size() != 1 || uses_.writers(x).size() > 1) return {};
    const Node& pooling = nodes_[writers[0]];
    if (!pooling.SpecAs<PoolingForwardSpec>() || !SameView(pooling.inputs[0], x)) return {};
    const Tensor& y = pooling.outputs[0];
    return uses_.writers(y).size() == 1 ? std::optional(y) : std::nullopt;
  }

  std::vector<Node> nodes_;
  DefUse uses_;
  std::unordered_set<size_t> gone_;
  std::unordered_map<size_t, Node> before_;
};

}  // namespace

std::vector<Node> PassReluThroughPooling(const RecordedStep& step, std::vector<Node> nodes) {
  return ReluInFront(step, std::move(nodes)).Nodes();
}

}  // namespace singa
