#include "core/graph/arena_uses.h"

#include <algorithm>
#include <unordered_map>

namespace singa {

std::vector<ArenaUse> UsesOf(std::span<const Node> nodes, int first, const SegmentMemory& memory,
                             std::span<const BlockPtr> lent) {
  const int end = static_cast<int>(nodes.size());
  std::unordered_map<const Block*, uint64_t> offset;
  for (const SegmentMemory::Place& place : memory.blocks) offset[place.block.get()] = place.offset;
  std::unordered_map<const Block*, int> last;
  for (int n = 0; n < end; ++n)
    for (const auto* tensors : {&nodes[n].inputs, &nodes[n].outputs})
      for (const Tensor& t : *tensors)
        if (!t.empty()) last[t.block().get()] = n;
  for (const BlockPtr& block : lent) last[block.get()] = end - 1;

  std::vector<ArenaUse> uses;
  std::unordered_map<const Block*, size_t> use_of;
  std::unordered_map<uint64_t, size_t> now;  // by offset
  for (int n = 0; n < end; ++n) {
    const Node& node = nodes[n];
    const auto add = [&](uint64_t at, uint64_t bytes, int until, bool workspace) {
      uses.push_back({node.op, node.layer, at, bytes, first + n, first + until, workspace});
    };
    const auto begin = [&](const Tensor& t) {
      if (t.empty()) return;
      const Block* block = t.block().get();
      const auto place = offset.find(block);
      if (place == offset.end() || !use_of.emplace(block, uses.size()).second) return;
      // A result that takes over memory ends the use of what lay there.
      if (const auto before = now.find(place->second); before != now.end()) {
        ArenaUse& use = uses[before->second];
        if (use.last == first + n) use.last = std::max(use.first, first + n - 1);
      }
      now[place->second] = uses.size();
      add(place->second, block->size(), last[block], false);
    };
    for (const Tensor& output : node.outputs) begin(output);
    for (const Tensor& input : node.inputs) begin(input);  // which no node has written
    if (const size_t bytes = node.plan->workspace_bytes(); bytes > 0)
      add(memory.workspaces[static_cast<size_t>(n)], bytes, n, true);
  }
  return uses;
}

}  // namespace singa
