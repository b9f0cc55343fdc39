#include "core/graph/arena_memory.h"

#include <sstream>
#include <unordered_set>
#include <utility>

#include "singa/core/graph.h"

namespace singa {
namespace {

/// A text that says how a tensor is computed: plans, source blocks, and the views of these. Tensors
/// with equal texts have equal elements.
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

/// The plan that stands for all plans that compute the same.
PlanPtr Representative(std::vector<std::weak_ptr<const Plan>>* known, const PlanPtr& plan) {
  for (const std::weak_ptr<const Plan>& other : *known)
    if (const PlanPtr alive = other.lock(); alive && (alive == plan || alive->SameAs(*plan)))
      return alive;
  known->push_back(plan);
  return plan;
}

}  // namespace

ArenaMemory::ArenaMemory(DevicePtr device)
    : device_(device ? std::move(device) : DefaultDevice()) {}

ArenaMemory::~ArenaMemory() {
  if (data_ && !device_->closed()) device_->Free(data_, bytes_);
}

void ArenaMemory::Reserve(size_t bytes) {
  if (bytes <= bytes_) return;
  if (data_) device_->Free(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  device_->EmptyCache();  // executed steps left memory that nothing will ask for again
  data_ = static_cast<char*>(device_->Allocate(bytes));
  bytes_ = bytes;
  ++generation_;
}

void ArenaMemory::SharePrepared(std::vector<Node>* preparation, std::vector<Node>* nodes) {
  std::unordered_set<const Block*> read;
  for (const Node& node : *nodes)
    for (const Tensor& t : node.inputs)
      if (!t.empty()) read.insert(t.block().get());
  std::unordered_map<const Block*, Origin> computed;
  std::unordered_map<const Block*, BlockPtr> instead;
  for (Node& node : *preparation) {
    node.plan = Representative(&plans_, node.plan);
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      const BlockPtr& block = node.outputs[i].block();
      const Origin& origin = computed[block.get()] = OriginOf(node, i, computed);
      if (!read.count(block.get())) continue;  // a temporary of the preparation
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
  std::erase_if(plans_, [](const auto& plan) { return plan.expired(); });
}

size_t ArenaMemory::prepared_bytes() const {
  size_t sum = 0;
  for (const auto& [origin, block] : prepared_)
    if (const BlockPtr alive = block.lock()) sum += alive->size();
  return sum;
}

Arena::Arena(DevicePtr device) : memory_(std::make_shared<ArenaMemory>(std::move(device))) {}
void Arena::Reserve(size_t bytes) { memory_->Reserve(bytes); }
size_t Arena::bytes() const { return memory_->bytes(); }
size_t Arena::prepared_bytes() const { return memory_->prepared_bytes(); }

}  // namespace singa
