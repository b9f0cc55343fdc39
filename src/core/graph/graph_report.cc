// What a graph says of itself: its memory, who uses which part of the arena, and its operations.

#include <algorithm>
#include <set>
#include <sstream>
#include <unordered_map>

#include "core/graph/arena_uses.h"
#include "core/graph/graph_impl.h"

namespace singa {

GraphMemory Graph::Impl::memory() const {
  GraphMemory memory;
  for (const Segment& segment : segments_) {
    memory.arena = std::max<uint64_t>(memory.arena, segment.memory.bytes);
    memory.peak = std::max<uint64_t>(memory.peak, segment.memory.peak);
    memory.in_place += static_cast<uint64_t>(segment.memory.in_place);
  }
  for (const BlockPtr& block : internal_) memory.unshared += block->size();
  for (const Tensor& input : inputs_) memory.inputs += static_cast<uint64_t>(input.bytes());
  for (const Kept& result : fresh_) memory.outputs += result.block->size();
  Blocks persistent;
  for (const Kept& kept : kept_) persistent.insert(kept.block.get());
  for (const Source& source : sources_) persistent.insert(source.kept.block.get());
  for (const Block* block : persistent) memory.persistent += block->size();
  for (const BlockPtr& block : prepared_) memory.prepared += block->size();
  for (const BlockPtr& block : fixed_) memory.fixed += block->size();
  std::set<const Plan*> plans;
  for (const Node& node : nodes_)
    if (plans.insert(node.plan.get()).second) memory.plans += node.plan->bytes();
  memory.nodes = nodes_.size();
  memory.branches = captured_ ? captured_->branches() : 0;
  memory.longest = captured_ ? captured_->longest() : nodes_.size();
  for (const Node& node : nodes_) memory.merged += static_cast<uint64_t>(node.merged);
  return memory;
}

std::vector<ArenaUse> Graph::Impl::arena_uses() const {
  std::vector<ArenaUse> uses;
  size_t begin = 0;
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    std::vector<BlockPtr> lent;
    for (const Lent& one : lent_[s]) lent.push_back(one.kept.block);
    const auto found = UsesOf({nodes_.data() + begin, segment.nodes - begin},
                              static_cast<int>(begin), segment.memory, lent);
    uses.insert(uses.end(), found.begin(), found.end());
    begin = segment.nodes;
  }
  return uses;
}

std::string Graph::Impl::ToString() const {
  std::unordered_map<const Block*, std::string> name;
  for (size_t i = 0; i < inputs_.size(); ++i)
    name[inputs_[i].block().get()] = "input" + std::to_string(i);
  for (size_t i = 0; i < fresh_.size(); ++i)
    name[fresh_[i].block.get()] = "output" + std::to_string(i);
  for (size_t i = 0; i < kept_.size(); ++i) name[kept_[i].block.get()] = "kept" + std::to_string(i);
  for (const Segment& segment : segments_)
    for (const SegmentMemory::Place& place : segment.memory.blocks)
      name[place.block.get()] = "@" + std::to_string(place.offset);
  std::ostringstream text;
  size_t begin = 0;
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Segment& segment = segments_[s];
    text << "segment " << s << ": " << segment.nodes - begin << " operations, arena "
         << segment.memory.bytes << " bytes\n";
    for (size_t i = begin; i < segment.nodes; ++i) {
      const Node& node = nodes_[i];
      text << "  " << i << ' ' << node.op << (node.layer.empty() ? "" : " [" + node.layer + "]")
           << " by " << node.plan->Describe() << ':';
      const auto write = [&](const std::vector<Tensor>& tensors) {
        for (const Tensor& t : tensors)
          text << ' '
               << (t.empty() ? "-"
                             : name[t.block().get()] + t.shape().ToString() +
                                   (t.layout() ? LayoutName(t.layout()) : ""));
      };
      write(node.inputs);
      text << " ->";
      write(node.outputs);
      text << '\n';
    }
    begin = segment.nodes;
  }
  if (captured_ && captured_->branches() > 0)
    text << "captured: " << captured_->branches() << " branches, " << captured_->longest() << " of "
         << nodes_.size() << " operations one after the other\n";
  if (captured_)
    for (const std::string& reason : captured_->why_alone())
      text << "queued by itself: " << reason << '\n';
  return text.str();
}

}  // namespace singa
