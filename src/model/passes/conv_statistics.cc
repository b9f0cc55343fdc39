#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "model/dispatch/dispatch.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/conv/spec.h"
#include "model/passes/def_use.h"
#include "model/passes/node_spec.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

bool CanSum(const ConvSpec& spec) {
  return spec.pass == ConvPass::kForward && !spec.has_add && !spec.activation;
}

bool TakesSums(const BatchNormForwardSpec& spec) {
  return spec.training && (spec.dtype == kBFloat16 || spec.dtype == kFloat16);
}

/// The plan of `spec`. Null if there is none, or if it wants the arguments of `node` in other
/// layouts.
template <class Spec>
PlanPtr PlanFor(const Spec& spec, const PlanOptions& choice, const Node& node,
                const Device& device) {
  PlanPtr plan;
  try {
    plan = FindPlan(device, spec, choice);
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception&) {
    return nullptr;  // no kernel takes it, or none of a library's engines could be built
  }
  return LieAsPlanned(node, *plan) ? plan : nullptr;
}

void Merge(const DevicePtr& device, Node& conv, Node& norm) {
  const ConvStatisticsSpec with_sums{*conv.SpecAs<ConvSpec>()};
  const BatchNormFromSumsSpec from_sums{*norm.SpecAs<BatchNormForwardSpec>()};
  PlanPtr conv_plan = PlanFor(with_sums, with_sums.choice, conv, *device);
  PlanPtr norm_plan = conv_plan ? PlanFor(from_sums, {}, norm, *device) : nullptr;
  if (!norm_plan) return;
  Respecify(conv, with_sums, std::move(conv_plan));
  conv.op = with_sums.op();
  Respecify(norm, from_sums, std::move(norm_plan));
  norm.op = from_sums.op();
  for (const size_t statistic : {size_t{1}, size_t{2}}) {
    const Tensor sums = TemporaryLike(norm.outputs[statistic]);
    conv.outputs.push_back(sums);
    norm.inputs.push_back(sums);
  }
}

}  // namespace

std::vector<Node> TakeStatisticsInConvolutions(const RecordedStep& step, std::vector<Node> nodes) {
  const DefUse uses(step, nodes);
  for (Node& norm : nodes) {
    const auto* spec = norm.SpecAs<BatchNormForwardSpec>();
    if (!spec || !TakesSums(*spec)) continue;
    const Tensor& x = norm.inputs[0];
    const std::vector<size_t>& writers = uses.writers(x);
    if (writers.size() != 1) continue;
    Node& conv = nodes[writers[0]];
    const auto* conv_spec = conv.SpecAs<ConvSpec>();
    if (conv_spec && CanSum(*conv_spec) && SameView(conv.outputs[0], x))
      Merge(step.device(), conv, norm);
  }
  return nodes;
}

}  // namespace singa
