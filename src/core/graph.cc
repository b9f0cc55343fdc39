#include "singa/core/graph.h"

#include <algorithm>
#include <bit>
#include <set>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "core/captured_nodes.h"
#include "core/memory_planner.h"
#include "core/profile.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

using Slot = Recording::Slot;

/// Bytes of an arena up to which nodes that could run side by side get memory of their own.
constexpr size_t kSpread = size_t{32} << 20;

std::string Where(const Node& node, size_t index) {
  std::string text = "operation " + std::to_string(index) + ", " + node.op;
  return node.layer.empty() ? text : text + " in layer " + node.layer;
}

/// Two recordings of a step, compared tensor by tensor.
class Comparison {
 public:
  Comparison(const Recording& a, const Recording& b) : a_(a), b_(b) {}

  std::string Difference() const {
    for (const Recording* recording : {&a_, &b_})
      if (!recording->obstacle().empty()) return recording->obstacle();
    const size_t nodes = std::min(a_.nodes().size(), b_.nodes().size());
    for (size_t i = 0; i < nodes; ++i)
      if (std::string text = OfNodes(a_.nodes()[i], b_.nodes()[i]); !text.empty())
        return Where(b_.nodes()[i], i) + ": " + text;
    if (a_.nodes().size() != b_.nodes().size())
      return std::to_string(a_.nodes().size()) + " operations, then " +
             std::to_string(b_.nodes().size());
    for (size_t i = 0; i < a_.slots().size(); ++i)
      if (std::string text = OfSlots(a_.slots()[i], b_.slots()[i]); !text.empty()) return text;
    if (KeepsOfEachStep()) return "the step keeps results that it does not return";
    return OfEnds();
  }

 private:
  std::string OfNodes(const Node& a, const Node& b) const {
    if (std::string_view(a.op) != b.op) return std::string("it was ") + a.op + " before";
    if (!a.plan->SameAs(*b.plan)) return "its shapes, types, layouts or implementation change";
    if (a.random != b.random) return "its random numbers come from elsewhere";
    if (!a.live != !b.live) return "its numbers come from elsewhere";
    for (size_t i = 0; i < a.scalars.v.size() && !b.live; ++i)
      // By their bits: -0 is not 0, and a NaN stays the same.
      if (std::bit_cast<uint64_t>(a.scalars.v[i]) != std::bit_cast<uint64_t>(b.scalars.v[i]))
        return "a number changes from step to step, " + std::to_string(a.scalars.v[i]) + " to " +
               std::to_string(b.scalars.v[i]);
    if (a.random < 0 && (a.scalars.seed != b.scalars.seed || a.scalars.offset != b.scalars.offset))
      return "its random numbers come from elsewhere";
    if (!SameTensors(a.inputs, b.inputs)) return "it reads other tensors";
    if (!SameTensors(a.outputs, b.outputs)) return "it writes other tensors";
    return "";
  }

  bool SameTensors(const std::vector<Tensor>& a, const std::vector<Tensor>& b) const {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [&](const Tensor& x, const Tensor& y) { return SameTensor(x, y); });
  }

  bool SameTensor(const Tensor& x, const Tensor& y) const {
    if (x.empty() || y.empty()) return x.empty() && y.empty();
    return a_.SlotOf(x.block().get()) == b_.SlotOf(y.block().get()) && x.shape() == y.shape() &&
           x.strides() == y.strides() && x.offset() == y.offset() && x.data_type() == y.data_type();
  }

  std::string OfSlots(const Slot& a, const Slot& b) const {
    if (a.input != b.input || a.made != b.made || a.internal != b.internal)
      return "what is kept of a step changes";
    if (!SameLayout(a.layout, b.layout) || a.block->size() != b.block->size())
      return "layouts change from step to step";
    if (b.input < 0 && !b.made && a.block != b.block) {
      const Node* reader = nullptr;
      for (const Node& node : b_.nodes())
        for (const Tensor& t : node.inputs)
          if (!reader && !t.empty() && t.block() == b.block) reader = &node;
      return std::string("the step makes a tensor from data of the host") +
             (reader ? std::string(", for ") + reader->op : "") + "; hand it over as an argument";
    }
    return "";
  }

  /// Results of the first recording that somebody still holds, though they were not returned.
  bool KeepsOfEachStep() const {
    for (size_t i = 0; i < a_.slots().size(); ++i) {
      const Slot& slot = a_.slots()[i];
      const auto returned = [&](const Tensor& t) { return !t.empty() && t.block() == slot.block; };
      if (slot.made && !slot.internal && a_.IsHeld(static_cast<int>(i)) &&
          std::none_of(a_.outputs().begin(), a_.outputs().end(), returned))
        return true;
    }
    return false;
  }

  std::string OfEnds() const {
    const auto same_segment = [](const auto& x, const auto& y) {
      return x.nodes == y.nodes && x.draws == y.draws && x.lent == y.lent;
    };
    if (!std::equal(a_.segments().begin(), a_.segments().end(), b_.segments().begin(),
                    b_.segments().end(), same_segment))
      return "what the host does in the step changes";
    const auto same_output = [&](const Tensor& x, const Tensor& y) {
      if (x.empty() || y.empty()) return x.empty() && y.empty();
      const int slot = b_.SlotOf(y.block().get());
      if (slot >= 0) return SameTensor(x, y);
      return x.block() == y.block() && x.shape() == y.shape() && x.strides() == y.strides() &&
             x.offset() == y.offset();
    };
    if (!std::equal(a_.outputs().begin(), a_.outputs().end(), b_.outputs().begin(),
                    b_.outputs().end(), same_output))
      return "what the step returns changes";
    return "";
  }

  const Recording& a_;
  const Recording& b_;
};

}  // namespace

std::string Graph::Difference(const Recording& first, const Recording& second) {
  return Comparison(first, second).Difference();
}

Graph::Graph(const RecordingPtr& recording)
    : device_((Check(recording != nullptr, "graph", "there is no recording"), recording->device())),
      arena_(recording->arena()),
      nodes_(recording->nodes()),
      segments_(recording->segments()),
      draws_(recording->draws()),
      preparation_(recording->preparation()) {
  Check(recording->obstacle().empty(), "graph", recording->obstacle());
  const std::vector<Slot>& slots = recording->slots();
  std::unordered_map<const Block*, BlockPtr> instead;
  std::unordered_map<const Block*, int> fresh;
  const auto substitute = [&](const BlockPtr& block) {
    const auto own = std::make_shared<Block>(device_, nullptr, block->size(), nullptr);
    own->set_layout(block->layout());
    instead[block.get()] = own;
    return own;
  };
  // Inputs and results get blocks of their own, whose memory changes from replay to replay.
  for (const Tensor& input : recording->inputs())
    inputs_.push_back(input.On(substitute(input.block())));
  for (const Tensor& t : recording->outputs()) {
    Output output{.tensor = t};
    const int index = t.empty() ? -1 : recording->SlotOf(t.block().get());
    if (index >= 0) {
      const Slot& slot = slots[static_cast<size_t>(index)];
      output.input = slot.input;
      if (slot.made) {
        const auto [place, first] =
            fresh.try_emplace(t.block().get(), static_cast<int>(fresh_.size()));
        if (first) {
          const BlockPtr own = substitute(t.block());
          fresh_.push_back({own, own->layout()});
        }
        output.fresh = place->second;
      }
    }
    if (output.input >= 0 || output.fresh >= 0) output.tensor = t.On(instead.at(t.block().get()));
    outputs_.push_back(output);
  }
  for (Node& node : nodes_)
    for (auto* tensors : {&node.inputs, &node.outputs})
      for (Tensor& t : *tensors)
        if (!t.empty())
          if (const auto own = instead.find(t.block().get()); own != instead.end())
            t = t.On(own->second);

  arena_->SharePrepared(&preparation_, &nodes_);
  std::set<const Block*> read, used, prepared, sources;
  for (const Node& node : nodes_) {
    for (const Tensor& t : node.inputs)
      if (!t.empty()) read.insert(t.block().get());
    for (const Tensor& t : node.outputs)
      if (!t.empty()) used.insert(t.block().get());
  }
  used.insert(read.begin(), read.end());
  for (const Node& node : preparation_) {
    for (const Tensor& t : node.inputs)
      if (!t.empty()) sources.insert(t.block().get());
    for (const Tensor& t : node.outputs) {
      if (t.empty() || !prepared.insert(t.block().get()).second) continue;
      t.block()->OwnMemory();
      if (read.count(t.block().get())) prepared_.push_back(t.block());
    }
  }

  std::vector<BlockPtr> internal;
  for (const Slot& slot : slots) {
    const Block* block = slot.block.get();
    if (instead.count(block) || prepared.count(block)) continue;
    if (sources.count(block)) {
      sources_.push_back({{slot.block, slot.layout}});
      if (!read.count(block)) continue;
    }
    if (slot.internal) {
      if (!used.count(block)) continue;  // a rewriting has done without it
      internal.push_back(slot.block);
      unshared_ += slot.block->size();
    } else {
      kept_.push_back({slot.block, slot.layout});
    }
  }
  for (const Recording::Segment& segment : segments_) {
    auto& lent = lent_.emplace_back();
    for (int index : segment.lent) {
      const Slot& slot = slots[static_cast<size_t>(index)];
      if (slot.internal) lent.push_back({.kept = {slot.block, slot.layout}});
    }
  }
  PlanArena(internal);
  if (auto* capturer = dynamic_cast<Capturer*>(device_.get()); capturer && !WritesInputs())
    captured_ = std::make_unique<CapturedNodes>(*device_, *capturer, nodes_);
}

Graph::~Graph() = default;

void Graph::PlanArena(const std::vector<BlockPtr>& internal) {
  std::set<const Block*> temporary;
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
  for (const BlockPtr& block : internal) temporary.insert(block.get());
  size_t begin = 0;
  for (size_t s = 0; s < segments_.size(); ++s) {
    Recording::Segment& segment = segments_[s];
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

void Graph::BindArena() {
  arena_->Reserve(preparation_memory_.bytes);
  for (const Recording::Segment& segment : segments_) arena_->Reserve(segment.memory.bytes);
  if (generation_ == arena_->generation()) return;
  for (const SegmentMemory::Place& place : preparation_memory_.blocks)
    place.block->Bind(arena_->data() + place.offset);
  for (const Recording::Segment& segment : segments_)
    for (const SegmentMemory::Place& place : segment.memory.blocks)
      place.block->Bind(arena_->data() + place.offset);
  generation_ = arena_->generation();
}

bool Graph::Restore(const Kept& kept) const {
  if (SameLayout(kept.block->layout(), kept.layout)) return true;
  if (kept.block->pinned()) return false;
  try {
    kept.block->MakeLayout(kept.layout);
  } catch (const std::invalid_argument&) {
    return false;
  }
  return true;
}

bool Graph::IsPrepared() const {
  // Who has a block's address may write to it at any time.
  return has_prepared_ && std::all_of(sources_.begin(), sources_.end(), [](const Source& source) {
           const BlockPtr& block = source.kept.block;
           return block->version() == source.version && !block->pinned();
         });
}

bool Graph::Prepare() {
  for (Source& source : sources_) {
    if (!Restore(source.kept)) return false;
    source.version = source.kept.block->version();
  }
  for (const BlockPtr& block : prepared_) block->data();  // takes its memory, before threads ask
  for (size_t i = 0; i < preparation_.size(); ++i)
    device_->Run(preparation_[i], arena_->data() + preparation_memory_.workspaces[i]);
  return has_prepared_ = true;
}

/// Then their owner would not see what was written to a copy.
bool Graph::WritesInputs() const {
  for (const Node& node : nodes_)
    for (const Tensor& t : node.outputs)
      for (const Tensor& input : inputs_)
        if (!t.empty() && t.block() == input.block()) return true;
  return false;
}

/// Of all memory that nodes use and that may move between replays.
std::vector<const void*> Graph::Addresses() const {
  std::vector<const void*> addresses{arena_->data()};
  for (const Kept& kept : kept_) addresses.push_back(kept.block->data());
  for (const BlockPtr& block : prepared_) addresses.push_back(block->data());
  return addresses;
}

void Graph::BindEnds(const std::vector<Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) inputs_[i].block()->Bind(inputs[i].raw_data());
  for (const Kept& result : fresh_) {
    bound_outputs_.push_back(std::make_shared<Block>(device_, result.block->size()));
    bound_outputs_.back()->set_layout(result.layout);
    result.block->Bind(bound_outputs_.back()->data());
  }
}

void Graph::BindFixed(const std::vector<Tensor>& inputs) {
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

bool Graph::Start(const std::vector<Tensor>& inputs) {
  if (Recording::Current()) return false;  // a replay is no part of what is recorded
  Check(inputs.size() == inputs_.size(), "graph", inputs.size(), " inputs, recorded with ",
        inputs_.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    Check(inputs[i].shape() == inputs_[i].shape() &&
              inputs[i].data_type() == inputs_[i].data_type() && inputs[i].device() == device_,
          "graph", "input ", i, " was ", inputs_[i], " when recorded, is ", inputs[i]);
  for (const Kept& kept : kept_)
    if (!Restore(kept)) return false;
  BindArena();
  if (!preparation_.empty() && !IsPrepared() && !Prepare()) return false;
  is_started_ = false;
  bound_inputs_.clear();
  bound_outputs_.clear();
  for (const Tensor& input : inputs) bound_inputs_.push_back(input.Contiguous());
  is_fixed_ = captured_ && captured_->Start(Addresses());
  if (is_fixed_) {
    BindFixed(bound_inputs_);
  } else {
    BindEnds(bound_inputs_);
  }
  is_started_ = true;
  return true;
}

void Graph::CheckSegment(int index) const {
  Check(index >= 0 && index < segments(), "graph", "segment ", index, " of ", segments());
  Check(is_started_, "graph", "no replay has been started");
}

void Graph::Run(int index) {
  CheckSegment(index);
  const size_t s = static_cast<size_t>(index);
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
      const Recording::Draw& draw = draws_[static_cast<size_t>(node.random)];
      node.scalars.seed = draw.seed;
      node.scalars.offset = draw.offset;
    }
    if (node.live) node.scalars = *node.live;
    for (const Tensor& t : node.outputs)
      if (!t.empty()) t.block()->Touch();
  }
  const std::vector<size_t>& workspaces = segments_[s].memory.workspaces;
  // A call of the host between two segments may have moved something.
  if (is_fixed_ && captured_->Unmoved(Addresses())) {
    captured_->Queue(begin, segments_[s].nodes, arena_->data(), workspaces);
  } else {
    for (size_t i = begin; i < segments_[s].nodes; ++i)
      device_->Run(nodes_[i], arena_->data() + workspaces[i - begin]);
  }
}

bool Graph::TakeBack(int index) {
  CheckSegment(index);
  bool all = true;
  for (const Lent& lent : lent_[static_cast<size_t>(index)]) {
    const BlockPtr& block = lent.kept.block;
    if (block.use_count() > lent.references) {
      block->OwnMemory();
      all = false;
    } else if (!SameLayout(block->layout(), lent.kept.layout)) {
      block->Bind(arena_->data() + lent.offset);  // the host has made it plain
      block->set_layout(lent.kept.layout);
    }
  }
  return all;
}

std::vector<Tensor> Graph::Finish() {
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

std::optional<std::vector<Tensor>> Graph::Replay(const std::vector<Tensor>& inputs) {
  if (!Start(inputs)) return std::nullopt;
  for (int i = 0; i < segments(); ++i) Run(i);
  return Finish();
}

GraphMemory Graph::memory() const {
  GraphMemory memory;
  for (const Recording::Segment& segment : segments_) {
    memory.arena = std::max<uint64_t>(memory.arena, segment.memory.bytes);
    memory.peak = std::max<uint64_t>(memory.peak, segment.memory.peak);
    memory.in_place += static_cast<uint64_t>(segment.memory.in_place);
  }
  memory.unshared = unshared_;
  for (const Tensor& input : inputs_) memory.inputs += static_cast<uint64_t>(input.bytes());
  for (const Kept& result : fresh_) memory.outputs += result.block->size();
  std::set<const Block*> persistent;
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

std::string Graph::ToString() const {
  std::unordered_map<const Block*, std::string> name;
  for (size_t i = 0; i < inputs_.size(); ++i)
    name[inputs_[i].block().get()] = "input" + std::to_string(i);
  for (size_t i = 0; i < fresh_.size(); ++i)
    name[fresh_[i].block.get()] = "output" + std::to_string(i);
  for (size_t i = 0; i < kept_.size(); ++i) name[kept_[i].block.get()] = "kept" + std::to_string(i);
  for (const Recording::Segment& segment : segments_)
    for (const SegmentMemory::Place& place : segment.memory.blocks)
      name[place.block.get()] = "@" + std::to_string(place.offset);
  std::ostringstream text;
  size_t begin = 0;
  for (size_t s = 0; s < segments_.size(); ++s) {
    const Recording::Segment& segment = segments_[s];
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
