#pragma once

#include <memory>
#include <utility>

#include "core/tensor/stored_size.h"
#include "model/dispatch/dispatch.h"
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

/// Makes `node` compute `spec` by the plan that the call's options choose. Measures nothing.
template <class Spec>
void Respecify(Node& node, const Spec& spec, const Device& device) {
  PlanOptions choice;
  if constexpr (requires { spec.choice; }) choice = spec.choice;
  Respecify(node, spec, FindPlan(device, spec, choice.Unmeasured()));
}

/// A new temporary of a step, for all elements of a tensor like `t`. It gets memory of the arena.
inline Tensor TemporaryLike(const Tensor& t) {
  const auto block = std::make_shared<Block>(t.device(), nullptr, StoredBytes(t), nullptr);
  block->set_layout(t.layout());
  return Tensor(block, t.shape(), ContiguousStrides(t.shape()), 0, t.data_type());
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
