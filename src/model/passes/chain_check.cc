#include "model/passes/chain_check.h"

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/statistics/uncounted.h"
#include "model/dispatch/op_type.h"
#include "model/dispatch/opcheck/difference.h"
#include "model/dispatch/opcheck/opcheck.h"
#include "model/passes/chain_plan.h"

namespace singa {
namespace {

/// The Spec of a chain. It has no fields: the plan has everything.
struct ChainSpec {};

/// A copy of the first `elements` elements in the memory of `t`, on the CPU, in the order in which
/// they lie, padding included.
Tensor CopyAsItLies(const Tensor& t, int64_t elements) {
  Tensor copy({elements}, t.device(), t.data_type());
  std::memcpy(copy.raw_data(), t.raw_data(), static_cast<size_t>(elements) * SizeOf(t.data_type()));
  return copy;
}

/// Runs the operations of a chain one by one.
class PartByPart {
 public:
  /// Copies the arguments of the chain, before it runs.
  explicit PartByPart(const Node& chain)
      : chain_(chain), plan_(static_cast<const ChainPlan&>(*chain.plan)) {
    std::vector<bool> scalar(chain.inputs.size());
    for (const ChainPlan::Part& part : plan_.parts())
      for (const ChainPlan::Operand& operand : part.inputs)
        if (operand.place == ChainPlan::Place::kInput) scalar[operand.index] = operand.scalar;
    for (size_t i = 0; i < chain.inputs.size(); ++i)
      inputs_.push_back(CopyAsItLies(chain.inputs[i], scalar[i] ? 1 : plan_.elements()));
    for (const Tensor& output : chain.outputs)
      outputs_.push_back(CopyAsItLies(output, plan_.elements()));
    buffers_.resize(plan_.buffers());
  }

  /// Returns the results of the chain, as they lie.
  std::vector<Tensor> Run() {
    const UncountedScope uncounted;
    const DevicePtr device = outputs_[0].device();
    for (const ChainPlan::Part& part : plan_.parts()) {
      Node node;
      node.op = part.op;
      node.plan = part.plan;
      node.scalars = part.scalars;
      node.spec = part.spec;
      node.spec_type = part.spec_type;
      node.layer = chain_.layer;
      if (part.random) {
        node.scalars.seed = chain_.scalars.seed;
        node.scalars.offset = chain_.scalars.offset;
      }
      for (const ChainPlan::Operand& operand : part.inputs) node.inputs.push_back(Read(operand));
      for (const ChainPlan::Operand& operand : part.outputs) node.outputs.push_back(Write(operand));
      device->Run(node, nullptr);
    }
    return outputs_;
  }

 private:
  Tensor Read(const ChainPlan::Operand& operand) {
    const Tensor& t = operand.place == ChainPlan::Place::kInput    ? inputs_[operand.index]
                      : operand.place == ChainPlan::Place::kOutput ? outputs_[operand.index]
                                                                   : buffers_[operand.index];
    return operand.scalar ? Tensor(t.block(), {plan_.elements()}, {0}, 0, operand.dtype) : t;
  }
  Tensor Write(const ChainPlan::Operand& operand) {
    if (operand.place == ChainPlan::Place::kBuffer)
      buffers_[operand.index] = Tensor({plan_.elements()}, outputs_[0].device(), operand.dtype);
    return Read(operand);
  }

  const Node& chain_;
  const ChainPlan& plan_;
  std::vector<Tensor> inputs_, outputs_, buffers_;
};

bool RunChain(const Node& chain, const std::function<void()>& execute) {
  if (!opcheck::IsEnabledForMerged(chain.op)) return false;
  PartByPart parts(chain);
  execute();
  std::vector<Tensor> chosen;
  for (const Tensor& output : chain.outputs)
    chosen.push_back(CopyAsItLies(output, static_cast<const ChainPlan&>(*chain.plan).elements()));
  opcheck::Call call;
  call.op = chain.op;
  call.description = chain.plan->Describe();
  call.layer = chain.layer;
  call.inputs = chain.inputs;
  opcheck::Report(call, chosen,
                  opcheck::FindDifference(chosen, {.results = parts.Run(), .exact = true}));
  return true;
}

}  // namespace

void MakeChecked(Node* chain) {
  static constexpr OpType kType = [] {
    OpType type;
    type.id = &typeid(ChainSpec);
    type.run_node = RunChain;
    return type;
  }();
  static const bool added = (AddOpType(kType), true);
  (void)added;
  static const auto spec = std::make_shared<const ChainSpec>();
  chain->spec = spec;
  chain->spec_type = &kType;
}

}  // namespace singa
