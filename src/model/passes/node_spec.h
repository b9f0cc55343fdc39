#pragma once

#include <utility>

#include "singa/core/node.h"

namespace singa {

/// Makes `node` compute `spec` by `plan`.
template <class Spec>
void Respecify(Node& node, const Spec& spec, PlanPtr plan) {
  const SpecRef ref = spec;
  node.plan = std::move(plan);
  node.spec = ref.type->copy(ref.spec);
  node.spec_type = ref.type;
  node.multiply_adds = ref.type->multiply_adds ? ref.type->multiply_adds(ref.spec) : 0;
}

/// Whether the arguments of `node` lie in the layouts that `plan` wants.
inline bool LieAsPlanned(const Node& node, const Plan& plan) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (!node.inputs[i].empty() && !SameLayout(node.inputs[i].layout(), plan.input_layout(i)))
      return false;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (!node.outputs[i].empty() && !SameLayout(node.outputs[i].layout(), plan.output_layout(i)))
      return false;
  return true;
}

}  // namespace singa
