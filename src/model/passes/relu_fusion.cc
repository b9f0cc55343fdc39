#include <algorithm>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "model/dispatch/dispatch.h"
#include "model/operation/conv/spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/operation/linalg/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/merged_name.h"
#include "model/passes/node_spec.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// The ReLUs of one segment that go into the operations before them.
class ReluFusion {
 public:
  ReluFusion(const RecordedStep& step, std::vector<Node> nodes)
      : step_(step), nodes_(std::move(nodes)), uses_(step, nodes_) {}

  std::vector<Node> Nodes() {
    const size_t count = nodes_.size();
    for (size_t n = 0; n < count; ++n) {
      const Node& node = nodes_[n];
      if (const auto* conv = node.SpecAs<ConvSpec>(); conv && conv->pass == ConvPass::kForward)
        Forward(n, *conv);
      else if (const auto* product = node.SpecAs<MatMulSpec>())
        Forward(n, *product);
    }
    std::vector<Node> result;
    for (size_t n = 0; n < count; ++n)
      if (!gone_.count(n)) result.push_back(std::move(nodes_[n]));
    return result;
  }

 private:
  static bool HasRelu(const ConvSpec& spec) { return static_cast<bool>(spec.activation); }
  static bool HasRelu(const MatMulSpec& spec) { return spec.relu; }
  static void AddRelu(ConvSpec* spec) { spec->activation = true; }
  static void AddRelu(MatMulSpec* spec) { spec->relu = true; }

  /// Merges convolution or product `n` with the ReLU behind it.
  template <class Spec>
  void Forward(size_t n, Spec spec) {
    const std::optional<size_t> next = uses_.OnlyReader(nodes_[n].outputs[0]);
    if (!next || HasRelu(spec)) return;
    const Node& relu = nodes_[*next];
    const auto* unary = relu.SpecAs<UnarySpec>();
    if (!unary || unary->kind != UnaryOp::kRelu || !uses_.IsResultOf(*next, relu.outputs[0]))
      return;
    Node node = nodes_[n];
    AddRelu(&spec);
    Respecify(node, spec, *step_.device());
    if (!DoesAlike(*node.plan, nodes_[n])) return;
    node.op = MergedOp(std::vector<const Node*>{&nodes_[n], &relu});
    node.outputs = relu.outputs;
    ++node.merged;
    nodes_[n] = std::move(node);
    gone_.insert(*next);
  }

  /// Whether `plan` is the implementation that `node` has, on the same layouts.
  static bool DoesAlike(const Plan& plan, const Node& node) {
    return plan.Describe() == node.plan->Describe() &&
           plan.workspace_bytes() <= node.plan->workspace_bytes() && LieAsPlanned(node, plan);
  }

  const RecordedStep& step_;
  std::vector<Node> nodes_;
  DefUse uses_;
  std::unordered_set<size_t> gone_;
};

}  // namespace

std::vector<Node> FuseRelu(const RecordedStep& step, std::vector<Node> nodes) {
  return ReluFusion(step, std::move(nodes)).Nodes();
}

}  // namespace singa
