#include "model/passes/temporaries.h"

#include <algorithm>
#include <utility>

#include "core/memory/memory_planner.h"
#include "model/formula/activation.h"
#include "model/formula/loop_kind.h"
#include "model/formula/unary.h"
#include "model/operation/batchnorm/spec.h"
#include "model/operation/elementwise/spec.h"
#include "model/passes/normalized_again.h"
#include "model/passes/passes.h"

namespace singa {
namespace {

/// Operations of arithmetic, two for each multiply-add, in the time in which memory moves a byte.
constexpr double kOperationsPerByte = 20, kOperationsPerByteIn16Bits = 40;

/// Times the bytes of an elementwise operation with exponentials.
constexpr double kSlow = 2.5;

template <class Function>
void ForEachTensor(const Node& node, const Function& function) {
  for (const auto* tensors : {&node.inputs, &node.outputs})
    for (const Tensor& t : *tensors)
      if (!t.empty()) function(t);
}

void AddOnce(std::vector<int>* numbers, int number) {
  if (std::find(numbers->begin(), numbers->end(), number) == numbers->end())
    numbers->push_back(number);
}

/// Whether the node computes exponentials or the like for each element.
bool IsSlow(const Node& node) {
  if (const auto* unary = node.SpecAs<UnarySpec>())
    return formula::FactsOf(unary->kind).loop != formula::LoopKind::kPlain;
  const auto* norm = node.SpecAs<BatchNormForwardSpec>();
  return norm && formula::FactsOf(norm->activation.kind).is_slow;
}

}  // namespace

double EstimatedTime(const Node& node) {
  double bytes = 0;
  bool is_16_bits = false;
  ForEachTensor(node, [&](const Tensor& t) {
    bytes += static_cast<double>(t.bytes());
    is_16_bits |= t.data_type() == kBFloat16 || t.data_type() == kFloat16;
  });
  if (IsSlow(node)) bytes *= kSlow;
  return bytes + 2.0 * static_cast<double>(node.multiply_adds) /
                     (is_16_bits ? kOperationsPerByteIn16Bits : kOperationsPerByte);
}

Temporaries::Temporaries(const RecordedStep& step, const std::vector<Node>& nodes)
    : nodes_(nodes), alignment_(step.device()->alignment()) {
  const auto temporary = [&](const Block* block) {
    const int slot = step.SlotOf(block);
    return slot < 0 || (step.slots()[static_cast<size_t>(slot)].internal && !block->has_memory());
  };
  const auto enter = [&](const Tensor& t, int n) {
    const Block* block = t.block().get();
    if (!temporary(block)) return;
    const auto [place, fresh] = value_of_.try_emplace(block, static_cast<int>(values_.size()));
    if (fresh) {
      Value& value = values_.emplace_back();
      value.block = t.block();
      value.bytes = PlannedBytes(block->size(), alignment_);
      const int slot = step.SlotOf(block);
      value.stays = slot >= 0 && step.slots()[static_cast<size_t>(slot)].lent;
      if (value.stays) lent_.push_back(t.block());
    }
    AddOnce(&values_[static_cast<size_t>(place->second)].uses, n);
  };
  const int count = static_cast<int>(nodes.size());
  for (int n = 0; n < count; ++n) {
    const Node& node = nodes[static_cast<size_t>(n)];
    ForEachTensor(node, [&](const Tensor& t) { enter(t, n); });
    for (const Tensor& t : node.outputs)
      if (!t.empty()) AddOnce(&writers_[t.block().get()], n);
  }
  // A Graph takes what depends on parameters alone out of the arena.
  for (const Node& node : MarkPreparation(step, nodes))
    for (const Tensor& t : node.outputs)
      if (const int v = node.prepares ? ValueOf(t) : -1; v >= 0) {
        values_[static_cast<size_t>(v)].stays = true;
        prepared_ += std::exchange(values_[static_cast<size_t>(v)].bytes, 0);
      }
  for (const Node& node : nodes) time_ += work_.emplace_back(WorkOf(node)).time;
  followers_.resize(values_.size());
  for (int n = 0; n < count; ++n) {
    again_.push_back(AgainOf(n, *step.device()));
    if (!again_.back()) continue;
    for (int v : again_.back()->work.makes) values_[static_cast<size_t>(v)].writer = n;
    for (int v : again_.back()->work.reads) followers_[static_cast<size_t>(v)].push_back(n);
  }
}

int Temporaries::ValueOf(const Tensor& t) const {
  const auto found = t.empty() ? value_of_.end() : value_of_.find(t.block().get());
  return found == value_of_.end() ? -1 : found->second;
}

Temporaries::Work Temporaries::WorkOf(const Node& node) const {
  Work work;
  for (const Tensor& t : node.inputs)
    if (const int v = ValueOf(t); v >= 0) AddOnce(&work.reads, v);
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const int v = ValueOf(node.outputs[i]);
    if (v < 0) continue;
    AddOnce(&work.makes, v);
    if (const Tensor* input = TakenOver(node, i); input && ValueOf(*input) >= 0)
      work.takes_over.emplace_back(v, ValueOf(*input));
  }
  if (const size_t bytes = node.plan->workspace_bytes(); bytes > 0)
    work.workspace = PlannedBytes(bytes, alignment_);
  work.time = EstimatedTime(node);
  return work;
}

std::optional<Temporaries::Again> Temporaries::AgainOf(int n, const Device& device) const {
  const Node& node = nodes_[static_cast<size_t>(n)];
  Again again;
  if (std::optional<Node> normalized = NormalizedAgain(device, node)) {
    again.node = *std::move(normalized);
  } else {
    again.node = node;
    again.node.merged = 0;
    if (node.live || node.plan == TurnPlan()) return {};
  }
  again.work = WorkOf(again.node);
  if (again.work.makes.empty()) return {};
  for (const Tensor& t : again.node.outputs) {
    if (t.empty()) continue;
    const auto is_same = [&](const Tensor& in) { return !in.empty() && in.block() == t.block(); };
    const int v = ValueOf(t);
    if (v < 0 || value(v).stays || writers_.at(t.block().get()) != std::vector<int>{n} ||
        value(v).uses.front() != n || std::any_of(node.inputs.begin(), node.inputs.end(), is_same))
      return {};
  }
  again.until = static_cast<int>(nodes_.size());
  for (const Tensor& t : again.node.inputs) {
    if (t.empty()) continue;
    const auto writers = writers_.find(t.block().get());
    if (writers == writers_.end()) continue;
    const auto next = std::upper_bound(writers->second.begin(), writers->second.end(), n);
    if (next != writers->second.end()) again.until = std::min(again.until, *next);
  }
  return again;
}

}  // namespace singa
