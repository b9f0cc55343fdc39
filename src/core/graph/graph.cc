// Replays of a recorded step.

#include "singa/core/graph.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "core/graph/difference.h"
#include "core/graph/graph_impl.h"
#include "core/graph/node_observer.h"
#include "core/memory/memory_planner.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

using Blocks = std::set<const Block*>;
using Digest = std::array<uint64_t, 4>;

/// Nodes that could run side by side get memory of their own in arenas of up to this many bytes.
constexpr size_t kSpread = size_t{32} << 20;

/// Calls `function` with each argument of the nodes that is not empty.
template <class Function>
void ForEachTensor(std::vector<Node>& nodes, const Function& function) {
  for (Node& node : nodes)
    for (auto* tensors : {&node.inputs, &node.outputs})
      for (Tensor& t : *tensors)
        if (!t.empty()) function(t);
}

/// Each step is a bijection of its number, so a change of one word always changes the digest;
/// another one does not with a chance of 2^-64.
Digest DigestOf(const Block& block) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;  // odd
  Digest digest{1, 2, 3, 4};
  const char* bytes = static_cast<const char*>(block.data());
  for (size_t left = block.size(); left > 0;) {
    Digest words{};
    const size_t count = std::min(left, sizeof(words));
    std::memcpy(words.data(), bytes, count);
    for (size_t i = 0; i < words.size(); ++i)
      digest[i] = std::rotl((digest[i] ^ words[i]) * kFactor, 29);
    bytes += count;
    left -= count;
  }
  return digest;
}

Blocks Read(const std::vector<Node>& nodes) {
  Blocks blocks;
  for (const Node& node : nodes)
    for (const Tensor& t : node.inputs)
      if (!t.empty()) blocks.insert(t.block().get());
  return blocks;
}

}  // namespace

Graph::Impl::Impl(const RecordedStep& step)
    : device_(step.device()), arena_(step.arena()), draws_(step.draws()) {
  Check(step.obstacle().empty(), "graph", step.obstacle());
  const std::vector<Slot> slots = TakeNodes(step);
  Blocks ends;
  ReplaceEnds(step, &ends);
  arena_->SharePrepared(&preparation_, &nodes_);
  SortSlots(slots, ends);
  for (const Node& node : nodes_)
    for (const Tensor& t : node.outputs)
      if (!t.empty()) written_.insert(t.block().get());
  PlanArena();
  FindTurn();
  auto* capturer = dynamic_cast<Capturer*>(device_.get());
  if (capturer && !WritesInputs() && turn_ == nodes_.size())
    captured_ = std::make_unique<CapturedNodes>(*device_, *capturer, nodes_);
}

/// Takes over the nodes, as passes rewrite them. Returns the slots of all blocks that they use.
std::vector<RecordedStep::Slot> Graph::Impl::TakeNodes(const RecordedStep& step) {
  size_t begin = 0;
  for (Segment segment : step.segments()) {
    for (Node& node : step.NodesForGraph(begin, segment.nodes))
      (node.prepares ? preparation_ : nodes_).push_back(std::move(node));
    begin = std::exchange(segment.nodes, nodes_.size());
    segments_.push_back(std::move(segment));
  }
  std::vector<Slot> slots = step.slots();
  Blocks added;
  const auto add = [&](const Tensor& t) {
    const Block* block = t.block().get();
    if (step.SlotOf(block) < 0 && added.insert(block).second) slots.push_back(TemporarySlot(t));
  };
  ForEachTensor(preparation_, add);
  ForEachTensor(nodes_, add);
  return slots;
}

/// Gives inputs and results blocks of their own, whose memory changes from replay to replay. `ends`
/// gets the blocks that these replace.
void Graph::Impl::ReplaceEnds(const RecordedStep& step, Blocks* ends) {
  std::unordered_map<const Block*, BlockPtr> instead;
  std::unordered_map<const Block*, int> fresh;
  const auto replace = [&](const BlockPtr& block) {
    const auto own = std::make_shared<Block>(device_, nullptr, block->size(), nullptr);
    own->set_layout(block->layout());
    instead[block.get()] = own;
    ends->insert(block.get());
    return own;
  };
  for (const Tensor& input : step.inputs()) inputs_.push_back(input.On(replace(input.block())));
  for (const Tensor& t : step.outputs()) {
    Output output{.tensor = t};
    const int index = t.empty() ? -1 : step.SlotOf(t.block().get());
    if (index >= 0) {
      const Slot& slot = step.slots()[static_cast<size_t>(index)];
      output.input = slot.input;
      if (slot.made) {
        const auto [place, first] =
            fresh.try_emplace(t.block().get(), static_cast<int>(fresh_.size()));
        if (first) {
          const BlockPtr own = replace(t.block());
          fresh_.push_back({own, own->layout()});
        }
        output.fresh = place->second;
      }
    }
    if (output.input >= 0 || output.fresh >= 0) output.tensor = t.On(instead.at(t.block().get()));
    outputs_.push_back(output);
  }
  ForEachTensor(nodes_, [&](Tensor& t) {
    if (const auto own = instead.find(t.block().get()); own != instead.end()) t = t.On(own->second);
  });
}

/// Finds out what each block is for: a temporary, a result or a source of the preparation, or a
/// tensor that outlives a replay.
void Graph::Impl::SortSlots(const std::vector<Slot>& slots, const Blocks& ends) {
  const Blocks read = Read(nodes_), sources = Read(preparation_);
  Blocks used = read, prepared;
  for (const Node& node : nodes_)
    for (const Tensor& t : node.outputs)
      if (!t.empty()) used.insert(t.block().get());
  for (const Node& node : preparation_)
    for (const Tensor& t : node.outputs) {
      if (t.empty() || !prepared.insert(t.block().get()).second) continue;
      t.block()->OwnMemory();
      if (read.count(t.block().get())) prepared_.push_back(t.block());
    }
  for (const Slot& slot : slots) {
    const Block* block = slot.block.get();
    if (ends.count(block) || prepared.count(block)) continue;
    if (sources.count(block)) sources_.push_back({{slot.block, slot.layout}});
    if (!used.count(block)) continue;  // only the preparation needs it, or nothing after the passes
    if (slot.internal) {
      internal_.push_back(slot.block);
    } else {
      kept_.push_back({slot.block, slot.layout});
    }
  }
  for (const Segment& segment : segments_) {
    auto& lent = lent_.emplace_back();
    for (int index : segment.lent) {
      const Slot& slot = slots[static_cast<size_t>(index)];
      if (slot.internal) lent.push_back({.kept = {slot.block, slot.layout}});
    }
  }
}

void Graph::Impl::PlanArena() {
  Blocks temporary;
  const auto is_left = [&](const Block* block) {
    return std::none_of(prepared_.begin(), prepared_.end(),
                        [&](const BlockPtr& left) { return left.get() == block; });
  };
  for (const Node& node : preparation_)
    for (const Tensor& t : node.outputs)
      if (!t.empty() && is_left(t.block().get())) temporary.insert(t.block().get());
  preparation_memory_ =
      PlanSegment(preparation_, [&](const Block* block) { return temporary.count(block) > 0; }, {});
  const auto* capturer = dynamic_cast<const Capturer*>(device_.get());
  const size_t spread = capturer && capturer->branches() > 1 ? kSpread : 0;
  temporary.clear();
  for (const BlockPtr& block : internal_) temporary.insert(block.get());
  size_t begin = 0;
  for (size_t s = 0; s < segments_.size(); ++s) {
    Segment& segment = segments_[s];
    std::vector<BlockPtr> lent;
    for (const Lent& one : lent_[s]) lent.push_back(one.kept.block);
    segment.memory = PlanSegment(
        {nodes_.data() + begin, segment.nodes - begin},
        [&](const Block* block) { return temporary.count(block) > 0; }, lent, spread);
    for (Lent& one : lent_[s])
      for (const SegmentMemory::Place& place : segment.memory.blocks)
        if (place.block == one.kept.block) one.offset = place.offset;
    begin = segment.nodes;
  }
  generation_ = 0;
}

void Graph::Impl::FindTurn() {
  const auto turns = [](const Node& node) { return node.plan == TurnPlan(); };
  const auto turn = std::find_if(nodes_.begin(), nodes_.end(), turns);
  turn_ = static_cast<size_t>(turn - nodes_.begin());
  if (turn == nodes_.end()) return;
  Check(segments() == 1 && std::count_if(turn, nodes_.end(), turns) == 1, "graph",
        "a step with a turn has one of them, and no host calls");
}

void Graph::Impl::BindArena() {
  arena_->Reserve(preparation_memory_.bytes);
  for (const Segment& segment : segments_) arena_->Reserve(segment.memory.bytes);
  if (generation_ == arena_->generation()) return;
  for (const SegmentMemory::Place& place : preparation_memory_.blocks)
    place.block->Bind(arena_->data() + place.offset);
  for (const Segment& segment : segments_)
    for (const SegmentMemory::Place& place : segment.memory.blocks)
      place.block->Bind(arena_->data() + place.offset);
  // The host may have moved them to another layout in the recorded step.
  for (const std::vector<Lent>& of_segment : lent_)
    for (const Lent& lent : of_segment) lent.kept.block->set_layout(lent.kept.layout);
  generation_ = arena_->generation();
}

bool Graph::Impl::Restore(const Kept& kept) const {
  if (SameLayout(kept.block->layout(), kept.layout)) return true;
  if (kept.block->pinned()) return false;
  try {
    kept.block->MakeLayout(kept.layout);
  } catch (const std::invalid_argument&) {
    return false;
  }
  return true;
}

/// The version tells of all writes but those of NumPy and DLPack, which may have come since the
/// block's address was given out, and may come at any time while it is pinned.
bool Graph::Impl::IsUnchanged(Source& source) const {
  const Block& block = *source.kept.block;
  if (block.version() != source.version) return false;
  const uint64_t exports = block.exports();
  if (exports == source.exports && !block.pinned()) return true;
  if (block.device()->kind() != DeviceKind::kCpu) return false;  // the host cannot read it
  if (!Restore(source.kept) || DigestOf(block) != source.digest) return false;
  if (!block.pinned()) source.exports = exports;
  return true;
}

/// Under OPCHECK: compares elements where IsUnchanged believes the version.
void Graph::Impl::CheckUnchanged(const Source& source) const {
  const Block& block = *source.kept.block;
  if (block.device()->kind() != DeviceKind::kCpu || !Restore(source.kept) ||
      DigestOf(block) == source.digest)
    return;
  for (const Node& node : preparation_)
    for (const Tensor& t : node.inputs)
      Check<std::logic_error>(t.empty() || t.block() != source.kept.block, "graph", node.op,
                              node.layer.empty() ? "" : " of layer ", node.layer,
                              " was prepared from ", t,
                              ", which has changed since, and whose version has not");
}

/// Which nodes of the preparation have to run where these sources have changed: those that read
/// them, directly or through others, and those that make the temporaries which these read.
std::vector<bool> Graph::Impl::DependsOn(Blocks blocks) const {
  std::vector<bool> runs(preparation_.size(), false);
  for (size_t i = 0; i < preparation_.size(); ++i) {
    for (const Tensor& t : preparation_[i].inputs)
      if (!t.empty() && blocks.count(t.block().get())) runs[i] = true;
    for (const Tensor& t : preparation_[i].outputs)
      if (!t.empty() && runs[i]) blocks.insert(t.block().get());
  }
  blocks.clear();
  for (size_t i = preparation_.size(); i-- > 0;) {
    for (const Tensor& t : preparation_[i].outputs)
      if (!t.empty() && blocks.count(t.block().get())) runs[i] = true;
    for (const Tensor& t : preparation_[i].inputs)
      if (!t.empty() && runs[i]) blocks.insert(t.block().get());
  }
  return runs;
}

/// Runs the preparation as far as its sources have changed. Returns false if one of them cannot be
/// moved back to its layout.
bool Graph::Impl::Prepare() {
  Blocks changed;
  for (Source& source : sources_) {
    if (has_prepared_ && IsUnchanged(source)) {
      if (WatchingObserver()) CheckUnchanged(source);
      continue;
    }
    if (!Restore(source.kept)) return false;
    changed.insert(source.kept.block.get());
    const Block& block = *source.kept.block;
    source.version = block.version();
    // Who has the address now may still write: that is looked at once more when it is gone.
    source.exports = block.exports() - (block.pinned() ? 1 : 0);
    if (block.device()->kind() == DeviceKind::kCpu) source.digest = DigestOf(block);
  }
  if (has_prepared_ && changed.empty()) return true;
  const bool all = !std::exchange(has_prepared_, false);  // also the next time if this one throws
  for (const BlockPtr& block : prepared_) block->data();  // allocates, before threads ask for it
  const std::vector<bool> runs = DependsOn(std::move(changed));
  for (size_t i = 0; i < preparation_.size(); ++i)
    if (all || runs[i])
      device_->Run(preparation_[i], arena_->data() + preparation_memory_.workspaces[i]);
  return has_prepared_ = true;
}

/// Whether nodes write inputs. Inputs may then not be copied, since their owner would not see the
/// new elements.
bool Graph::Impl::WritesInputs() const {
  return std::any_of(inputs_.begin(), inputs_.end(),
                     [&](const Tensor& t) { return written_.count(t.block().get()) > 0; });
}

/// Whether nodes write memory that two of these inputs share, or an input and a parameter. Nodes
/// were recorded, and may have been moved and merged, for inputs with memory of their own.
bool Graph::Impl::SharesWritten(const std::vector<Tensor>& inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const BlockPtr& block = inputs[i].block();
    const bool is_written = written_.count(inputs_[i].block().get()) > 0;
    for (size_t k = 0; k < i; ++k)
      if (inputs[k].block() == block && (is_written || written_.count(inputs_[k].block().get())))
        return true;
    for (const Kept& kept : kept_)
      if (kept.block == block && (is_written || written_.count(block.get()))) return true;
  }
  return false;
}

/// Addresses of all memory that nodes use and that may move between replays.
std::vector<const void*> Graph::Impl::Addresses() const {
  std::vector<const void*> addresses{arena_->data()};
  for (const Kept& kept : kept_) addresses.push_back(kept.block->data());
  for (const BlockPtr& block : prepared_) addresses.push_back(block->data());
  return addresses;
}

void Graph::Impl::BindEnds(const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) inputs_[i].block()->Bind(inputs[i].raw_data());
  for (const Kept& result : fresh_) {
    bound_outputs_.push_back(std::make_shared<Block>(device_, result.block->size()));
    bound_outputs_.back()->set_layout(result.layout);
    result.block->Bind(bound_outputs_.back()->data());
  }
}

void Graph::Impl::BindFixed(const std::vector<Tensor>& inputs) {
  const auto bind = [&](size_t i, const BlockPtr& block) {
    if (i == fixed_.size()) fixed_.push_back(std::make_shared<Block>(device_, block->size()));
    block->Bind(fixed_[i]->data());
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    bind(i, inputs_[i].block());
    device_->CopyBytes(fixed_[i]->data(), inputs[i].raw_data(),
                       static_cast<size_t>(inputs[i].bytes()));
  }
  for (size_t i = 0; i < fresh_.size(); ++i) bind(inputs.size() + i, fresh_[i].block);
}

void Graph::Impl::CheckInputs(const std::vector<Tensor>& inputs) const {
  Check(inputs.size() == inputs_.size(), "graph", inputs.size(), " inputs, recorded with ",
        inputs_.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    Check(inputs[i].shape() == inputs_[i].shape() &&
              inputs[i].data_type() == inputs_[i].data_type() && inputs[i].device() == device_,
          "graph", "input ", i, " was ", inputs_[i], " when recorded, is ", inputs[i]);
}

bool Graph::Impl::Start(const std::vector<Tensor>& inputs) {
  if (RecordedStep::Current()) return false;  // a replay cannot be part of a recording
  if (revision_ != PlanRevision()) return false;
  CheckInputs(inputs);
  if (SharesWritten(inputs)) return false;
  for (const Kept& kept : kept_)
    if (!Restore(kept)) return false;
  BindArena();
  if (!preparation_.empty() && !Prepare()) return false;
  is_started_ = is_at_turn_ = false;
  bound_inputs_.clear();
  bound_outputs_.clear();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const LayoutPtr& recorded = inputs_[i].layout();
    bound_inputs_.push_back(recorded ? inputs[i].ToLayout(recorded) : inputs[i].Contiguous());
    if (!written_.count(inputs_[i].block().get())) continue;
    if (bound_inputs_[i].block() != inputs[i].block()) return false;  // its owner would see nothing
    inputs[i].block()->Touch();
  }
  is_fixed_ = captured_ && captured_->Start(Addresses());
  if (is_fixed_) {
    BindFixed(bound_inputs_);
  } else {
    BindEnds(bound_inputs_);
  }
  is_started_ = true;
  return true;
}

bool Graph::Impl::Restore(const std::vector<Tensor>& inputs) const {
  CheckInputs(inputs);
  if (revision_ != PlanRevision() || SharesWritten(inputs)) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (!SameLayout(inputs[i].layout(), inputs_[i].layout()) ||
        (written_.count(inputs_[i].block().get()) &&
         static_cast<size_t>(inputs[i].bytes()) != inputs[i].block()->size()))
      return false;
  return std::all_of(kept_.begin(), kept_.end(), [&](const Kept& kept) { return Restore(kept); }) &&
         std::all_of(sources_.begin(), sources_.end(),
                     [&](const Source& source) { return Restore(source.kept); });
}

void Graph::Impl::CheckSegment(int index) const {
  Check(index >= 0 && index < segments(), "graph", "segment ", index, " of ", segments());
  Check(is_started_, "graph", "no replay has been started");
}

void Graph::Impl::Run(int index) {
  CheckSegment(index);
  const size_t s = static_cast<size_t>(index);
  BeginSegment(s);
  RunNodes(s, s > 0 ? segments_[s - 1].nodes : 0, segments_[s].nodes);
}

void Graph::Impl::BeginSegment(size_t s) {
  const size_t first_draw = s > 0 ? segments_[s - 1].draws : 0;
  for (size_t i = first_draw; i < segments_[s].draws; ++i) {
    Scalars scalars;
    device_->TakeRandom(draws_[i].count, &scalars);
    draws_[i].seed = scalars.seed;
    draws_[i].offset = scalars.offset;
  }
  for (Lent& lent : lent_[s]) lent.references = lent.kept.block.use_count();
  const size_t begin = s > 0 ? segments_[s - 1].nodes : 0;
  for (size_t i = begin; i < segments_[s].nodes; ++i) {
    Node& node = nodes_[i];
    if (node.random >= 0) {
      const RecordedStep::Draw& draw = draws_[static_cast<size_t>(node.random)];
      node.scalars.seed = draw.seed;
      node.scalars.offset = draw.offset;
    }
    if (node.live) node.scalars = *node.live;
    for (const Tensor& t : node.outputs)
      if (!t.empty()) t.block()->Touch();
  }
}

/// Runs nodes [begin, end) of segment s.
void Graph::Impl::RunNodes(size_t s, size_t begin, size_t end) {
  const size_t first = s > 0 ? segments_[s - 1].nodes : 0;
  const std::vector<size_t>& workspaces = segments_[s].memory.workspaces;
  // A host call between two segments may have moved memory.
  if (is_fixed_ && captured_->Unmoved(Addresses())) {
    captured_->Queue(begin, end, arena_->data(), workspaces);
  } else {
    for (size_t i = begin; i < end; ++i)
      device_->Run(nodes_[i], arena_->data() + workspaces[i - first]);
  }
}

std::optional<std::vector<Tensor>> Graph::Impl::RunToTurn(const std::vector<Tensor>& inputs) {
  Check(turn_ < nodes_.size(), "graph", "the step has no turn");
  if (!Start(inputs)) return std::nullopt;
  BeginSegment(0);
  RunNodes(0, 0, turn_);
  is_at_turn_ = true;
  std::vector<Tensor> results;
  for (const Tensor& t : nodes_[turn_].inputs) results.push_back(t.Clone());
  return results;
}

std::vector<Tensor> Graph::Impl::RunFromTurn(const std::vector<Tensor>& gradients) {
  Check(is_at_turn_, "graph", "no replay waits for gradients");
  const std::vector<Tensor>& wanted = nodes_[turn_].outputs;
  Check(gradients.size() == wanted.size(), "graph", gradients.size(), " gradients for ",
        wanted.size(), " results");
  for (size_t i = 0; i < wanted.size(); ++i)
    Check(gradients[i].empty() || (gradients[i].shape() == wanted[i].shape() &&
                                   gradients[i].data_type() == wanted[i].data_type()),
          "graph", "gradient ", i, " of ", wanted[i], " is ", gradients[i]);
  is_at_turn_ = false;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (!gradients[i].empty()) Tensor(wanted[i]).CopyFrom(gradients[i]);
  RunNodes(0, turn_ + 1, segments_[0].nodes);
  return Finish();
}

bool Graph::Impl::TakeBack(int index) {
  CheckSegment(index);
  bool all = true;
  for (const Lent& lent : lent_[static_cast<size_t>(index)]) {
    const BlockPtr& block = lent.kept.block;
    if (block.use_count() > lent.references) {
      block->OwnMemory();
      all = false;
    } else if (!SameLayout(block->layout(), lent.kept.layout)) {
      block->Bind(arena_->data() + lent.offset);  // the host has moved it to another layout
      block->set_layout(lent.kept.layout);
    }
  }
  return all;
}

std::vector<Tensor> Graph::Impl::Finish() {
  Check(is_started_, "graph", "no replay has been started");
  for (size_t i = 0; is_fixed_ && i < fresh_.size(); ++i) {
    const BlockPtr& block = fresh_[i].block;
    bound_outputs_.push_back(std::make_shared<Block>(device_, block->size()));
    bound_outputs_.back()->set_layout(fresh_[i].layout);
    device_->CopyBytes(bound_outputs_.back()->data(), block->data(), block->size());
  }
  std::vector<Tensor> results;
  for (const Output& output : outputs_) {
    const Tensor& t = output.tensor;
    if (output.input >= 0) {
      const Tensor& input = bound_inputs_[static_cast<size_t>(output.input)];
      results.push_back(Tensor(input.block(), t.shape(), t.strides(), input.offset() + t.offset(),
                               t.data_type()));
    } else if (output.fresh >= 0) {
      results.push_back(t.On(bound_outputs_[static_cast<size_t>(output.fresh)]));
    } else {
      results.push_back(t);
    }
  }
  bound_inputs_.clear();
  bound_outputs_.clear();
  is_started_ = false;
  return results;
}

// The public class.

std::string Graph::Difference(const Recording& first, const Recording& second) {
  return singa::Difference(first.step(), second.step());
}

Graph::Graph(const RecordingPtr& recording) {
  Check(recording != nullptr, "graph", "there is no recording");
  impl_ = std::make_unique<Impl>(recording->step());
}

Graph::~Graph() = default;

bool Graph::Start(const std::vector<Tensor>& inputs) { return impl_->Start(inputs); }
bool Graph::Restore(const std::vector<Tensor>& inputs) { return impl_->Restore(inputs); }
void Graph::Run(int segment) { impl_->Run(segment); }
bool Graph::TakeBack(int segment) { return impl_->TakeBack(segment); }
std::vector<Tensor> Graph::Finish() { return impl_->Finish(); }
std::optional<std::vector<Tensor>> Graph::RunToTurn(const std::vector<Tensor>& inputs) {
  return impl_->RunToTurn(inputs);
}
std::vector<Tensor> Graph::RunFromTurn(const std::vector<Tensor>& gradients) {
  return impl_->RunFromTurn(gradients);
}
int Graph::segments() const { return impl_->segments(); }
GraphMemory Graph::memory() const { return impl_->memory(); }
std::vector<ArenaUse> Graph::arena_uses() const { return impl_->arena_uses(); }
std::string Graph::ToString() const { return impl_->ToString(); }

std::optional<std::vector<Tensor>> Graph::Replay(const std::vector<Tensor>& inputs) {
  if (!Start(inputs)) return std::nullopt;
  for (int i = 0; i < segments(); ++i) Run(i);
  return Finish();
}

}  // namespace singa
