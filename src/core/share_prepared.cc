#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "singa/core/graph.h"

namespace singa {
namespace {

/// How a tensor is computed, in words that are equal where the result is: plans, the blocks that
/// they begin with, and the views of these.
using Origin = std::string;

Origin OriginOf(const Node& node, size_t output,
                const std::unordered_map<const Block*, Origin>& computed) {
  std::ostringstream text;
  text << output << " of " << node.plan.get() << ", " << node.outputs[output] << std::hexfloat;
  for (const double v : node.scalars.v) text << ' ' << v;
  for (const Tensor& t : node.inputs) {
    text << " (" << t;
    if (!t.empty()) {
      for (const int64_t stride : t.strides()) text << ' ' << stride;
      text << " at " << t.offset() << " in ";
      const auto found = computed.find(t.block().get());
      if (found != computed.end()) {
        text << found->second;
      } else {
        text << t.block().get();
      }
    }
    text << ')';
  }
  return text.str();
}

/// One for all plans that are the same.
PlanPtr Representative(std::vector<std::weak_ptr<const Plan>>* known, const PlanPtr& plan) {
  for (const std::weak_ptr<const Plan>& other : *known)
    if (const PlanPtr alive = other.lock(); alive && (alive == plan || alive->SameAs(*plan)))
      return alive;
  known->push_back(plan);
  return plan;
}

}  // namespace

void Arena::SharePrepared(std::vector<Node>* preparation, std::vector<Node>* nodes) {
  std::unordered_set<const Block*> read;
  for (const Node& node : *nodes)
    for (const Tensor& t : node.inputs)
      if (!t.empty()) read.insert(t.block().get());
  std::unordered_map<const Block*, Origin> computed;
  std::unordered_map<const Block*, BlockPtr> instead;
  for (Node& node : *preparation) {
    node.plan = Representative(&preparing_, node.plan);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      const BlockPtr& block = node.outputs[i].block();
      const Origin& origin = computed[block.get()] = OriginOf(node, i, computed);
      if (!read.count(block.get())) continue;  // lies where temporaries do
      std::weak_ptr<Block>& there = prepared_[origin];
      if (const BlockPtr shared = there.lock(); shared && shared->size() == block->size()) {
        instead[block.get()] = shared;
      } else {
        there = block;
      }
    }
  }
  for (std::vector<Node>* all : {preparation, nodes})
    for (Node& node : *all)
      for (std::vector<Tensor>* tensors : {&node.inputs, &node.outputs})
        for (Tensor& t : *tensors)
          if (const auto found = t.empty() ? instead.end() : instead.find(t.block().get());
              found != instead.end())
            t = t.On(found->second);
  std::erase_if(prepared_, [](const auto& entry) { return entry.second.expired(); });
  std::erase_if(preparing_, [](const auto& plan) { return plan.expired(); });
}

size_t Arena::prepared_bytes() const {
  size_t sum = 0;
  for (const auto& [origin, block] : prepared_)
    if (const BlockPtr alive = block.lock()) sum += alive->size();
  return sum;
}

}  // namespace singa
