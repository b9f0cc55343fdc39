#include "model/passes/normalized_again.h"

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/passes/node_spec.h"
#include "singa/core/stats.h"

namespace singa {

std::optional<Node> NormalizedAgain(const Device& device, const Node& node) {
  const BatchNormForwardSpec* spec = node.SpecAs<BatchNormForwardSpec>();
  if (!spec) spec = node.SpecAs<BatchNormFromSumsSpec>();
  if (!spec || !spec->training) return {};
  BatchNormForwardSpec again = *spec;
  again.training = false;
  SetCurrentLayer(node.layer);
  Node result;
  result.op = again.op();
  Respecify(result, again, FindPlan(device, again));
  const Tensor& y = node.outputs[0];
  if (!SameLayout(result.plan->output_layout(0), y.layout())) return {};
  const std::vector<Tensor>& in = node.inputs;
  result.inputs = {in[0], in[1], in[2], node.outputs[1], node.outputs[2], in[5]};
  result.outputs = {y};
  result.layer = node.layer;
  return result;
}

}  // namespace singa
