#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/merged_name.h"
#include "model/passes/node_spec.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// The batch norms of one segment whose backward may read two gradients.
class GradientSums {
 public:
  GradientSums(const RecordedStep& step, std::vector<Node> nodes)
      : step_(step), nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    std::vector<bool> gone(nodes_.size());
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const auto* spec = nodes_[n].SpecAs<BatchNormBackwardSpec>();
      if (!spec || !spec->need_add || spec->has_dy2) continue;
      if (const std::optional<size_t> sum = SumFor(n); sum && TakeParts(n, *spec, *sum))
        gone[*sum] = true;
    }
    std::vector<Node> result;
    for (size_t n = 0; n < nodes_.size(); ++n)
      if (!gone[n]) result.push_back(std::move(nodes_[n]));
    return result;
  }

 private:
  /// The addition that wrote the gradient of node `n` last, if only node `n` reads the sum.
  std::optional<size_t> SumFor(size_t n) const {
    const Tensor& dy = nodes_[n].inputs[0];
    const std::vector<size_t>&writers = uses_.writers(dy), &readers = uses_.readers(dy);
    if (!uses_.IsTemporary(dy) || writers.size() < 2 || writers.back() >= n) return {};
    const size_t sum = writers.back();
    const Node& node = nodes_[sum];
    if (!node.SpecAs<AxpySpec>() || node.live || node.scalars.v[0] != 1) return {};
    if (!SameView(node.outputs[0], dy) || readers.back() != n) return {};
    // Only node `n` reads the sum, and only once.
    for (size_t reader : readers)
      if (reader > sum && reader < n) return {};
    for (size_t i = 1; i < nodes_[n].inputs.size(); ++i)
      if (!nodes_[n].inputs[i].empty() && nodes_[n].inputs[i].block() == dy.block()) return {};
    // The tensor that is added does not change before node `n` reads it.
    const Tensor& added = node.inputs[0];
    for (size_t writer : uses_.writers(added))
      if (writer > sum && writer <= n) return {};
    const bool alike = added.block() != dy.block() && added.shape() == dy.shape() &&
                       SameLayout(added.layout(), dy.layout()) &&
                       (dy.layout() || (dy.is_contiguous() && added.is_contiguous()));
    return alike ? std::optional(sum) : std::nullopt;
  }

  /// Has node `n` read both gradients. Returns false if the chosen implementation cannot do that.
  bool TakeParts(size_t n, BatchNormBackwardSpec spec, size_t sum) {
    Node node = nodes_[n];
    spec.has_dy2 = true;
    Respecify(node, spec, *step_.device());
    node.inputs.push_back(nodes_[sum].inputs[0]);
    if (std::string_view(node.plan->implementation()) != nodes_[n].plan->implementation() ||
        !LieAsPlanned(node, *node.plan))
      return false;
    node.op = MergedOp(std::vector<const Node*>{&nodes_[sum], &nodes_[n]});
    ++node.merged;
    nodes_[n] = std::move(node);
    return true;
  }

  const RecordedStep& step_;
  std::vector<Node> nodes_;
  DefUse uses_;
};

}  // namespace

std::vector<Node> MergeGradientSums(const RecordedStep& step, std::vector<Node> nodes) {
  return GradientSums(step, std::move(nodes)).Nodes();
}

}  // namespace singa
