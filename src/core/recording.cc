#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

#include "core/executing.h"
#include "core/memory_planner.h"
#include "core/moves.h"
#include "core/profile.h"
#include "singa/core/error.h"
#include "singa/core/graph.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

thread_local Recording* t_recording = nullptr;

/// What a rewriting brings in: memory of the arena.
Recording::Slot Temporary(const Tensor& t) {
  return {.block = t.block(), .layout = t.layout(), .made = true, .internal = true};
}

}  // namespace

Executing::Executing() : recording_(std::exchange(t_recording, nullptr)), layer_(CurrentLayer()) {}

Executing::~Executing() {
  t_recording = recording_;
  SetCurrentLayer(layer_);
}

Arena::Arena(DevicePtr device) : device_(device ? std::move(device) : DefaultDevice()) {}

Arena::~Arena() {
  if (data_ && !device_->closed()) device_->Free(data_, bytes_);
}

void Arena::Reserve(size_t bytes) {
  if (bytes <= bytes_) return;
  if (data_) device_->Free(data_, bytes_);
  data_ = nullptr;
  bytes_ = 0;
  device_->EmptyCache();  // what was executed before left memory that nobody will ask for again
  data_ = static_cast<char*>(device_->Allocate(bytes));
  bytes_ = bytes;
  ++generation_;
}

Recording* Recording::Current() { return t_recording; }

Recording::Recording(DevicePtr device, ArenaPtr arena)
    : device_(std::move(device)), arena_(std::move(arena)) {
  if (!device_) device_ = DefaultDevice();
  if (!arena_) arena_ = std::make_shared<Arena>(device_);
}

Recording::~Recording() { Abandon(); }

void Recording::Start(const std::vector<Tensor>& inputs) {
  if (t_recording) throw std::logic_error("[graph] this thread is recording already");
  for (const Tensor& input : inputs) {
    Check(!input.empty(), "graph", "an input is an empty tensor (None)");
    Check(!slot_of_.count(input.block().get()), "graph", "two inputs share memory");
    const int slot = UseSlot(input, false);
    slots_[static_cast<size_t>(slot)].input = slot;  // the first slots are the inputs
  }
  inputs_ = inputs;
  t_recording = this;
  active_ = true;
}

void Recording::SetObstacle(const std::string& obstacle) {
  if (obstacle_.empty()) obstacle_ = obstacle;
}

int Recording::SlotOf(const Block* block) const {
  const auto found = slot_of_.find(block);
  return found == slot_of_.end() ? -1 : found->second;
}

int Recording::UseSlot(const Tensor& t, bool write) {
  const bool made = write && !t.block()->has_memory();
  const int index = Enter({.block = t.block(), .layout = t.layout(), .made = made});
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (slot.internal) {  // of an earlier segment: it was lent, and is not given back
    slot.block->OwnMemory();
    slot.internal = false;
    SetObstacle("a gradient is used beyond the optimizer's step");
  }
  return index;
}

int Recording::Enter(const Slot& slot) {
  const auto [place, fresh] =
      slot_of_.try_emplace(slot.block.get(), static_cast<int>(slots_.size()));
  if (fresh) {
    slots_.push_back(slot);
    mentions_.push_back(0);
  }
  return place->second;
}

void Recording::Mention(const std::vector<Node>& nodes, long change) {
  for (const Node& node : nodes)
    for (const auto* tensors : {&node.inputs, &node.outputs})
      for (const Tensor& t : *tensors)
        if (!t.empty()) mentions_[static_cast<size_t>(Enter(Temporary(t)))] += change;
}

void Recording::Append(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                       std::span<const Tensor> outputs, const Scalars& scalars,
                       const SpecRef& spec) {
  Node node;
  node.op = op;
  node.plan = plan;
  node.inputs.assign(inputs.begin(), inputs.end());
  node.outputs.assign(outputs.begin(), outputs.end());
  node.scalars = scalars;
  if (spec.copy) node.spec = spec.copy(spec.spec);
  node.spec_type = spec.type;
  if (spec.multiply_adds) node.multiply_adds = spec.multiply_adds(spec.spec);
  node.layer = CurrentLayer();
  if (std::string_view(op) == "Reorder") node.wanted_by = CurrentOp();
  for (size_t i = 0; i < draws_.size(); ++i)
    if (draws_[i].number == scalars.draw) node.random = static_cast<int>(i);
  const auto use = [&](const Tensor& t, bool write) {
    if (t.empty()) return;
    ++mentions_[static_cast<size_t>(UseSlot(t, write))];
    t.block()->set_waiting(true);
    if (write) t.block()->Touch();
  };
  for (const Tensor& t : node.inputs) use(t, false);
  for (const Tensor& t : node.outputs) use(t, true);
  nodes_.push_back(std::move(node));
}

bool Recording::RecordLayout(Block* block, const LayoutPtr& layout, const char* reason) {
  if (block->has_memory() || block->device() != device_) return false;
  const auto found = slot_of_.find(block);
  if (found == slot_of_.end()) return true;  // nothing is in it yet
  // What was recorded so far goes to a block in the old layout, which is reordered into this one.
  const BlockPtr self = block->shared_from_this();
  const BlockPtr before = std::make_shared<Block>(device_, block->size());
  before->set_layout(block->layout());
  before->set_waiting(true);
  const int slot = found->second;
  for (size_t n = ran_; n < nodes_.size(); ++n)
    for (auto* tensors : {&nodes_[n].inputs, &nodes_[n].outputs})
      for (Tensor& t : *tensors)
        if (t.block() == self) t = t.On(before);
  slots_[static_cast<size_t>(slot)].block = before;
  slot_of_.erase(found);
  slot_of_[before.get()] = slot;

  const LayoutPtr& whole = layout ? layout : block->layout();
  const auto view = [&](const BlockPtr& b) {
    return Tensor(b, whole->shape(), ContiguousStrides(whole->shape()), 0, whole->dtype());
  };
  const Tensor source = view(before);
  Append("Reorder", ReorderPlan(reason), {&source, 1}, std::span<const Tensor>{}, {}, {});
  // The output is the block itself, whose layout its owner sets when this returns.
  Node& node = nodes_.back();
  node.outputs.push_back(view(self));
  slot_of_[block] = static_cast<int>(slots_.size());
  slots_.push_back({.block = self, .layout = layout, .made = true});
  mentions_.push_back(1);
  block->set_waiting(true);
  return true;
}

long Recording::References(int slot) const {
  return mentions_[static_cast<size_t>(slot)] + 1;  // the nodes', and the slot's own
}

void Recording::StopWaiting() noexcept {
  for (const Slot& slot : slots_) slot.block->set_waiting(false);
}

void Recording::RunWaiting(const std::vector<Tensor>& lent) {
  const Executing executing;
  StopWaiting();
  Segment segment;
  segment.draws = draws_.size();
  std::vector<long> allowed(slots_.size(), 0);
  std::vector<BlockPtr> lent_blocks;
  for (const Tensor& t : lent) {
    const int slot = t.empty() ? -1 : SlotOf(t.block().get());
    if (slot < 0) continue;
    allowed[static_cast<size_t>(slot)] += 2;  // the list's, and the host's own
    if (std::count(segment.lent.begin(), segment.lent.end(), slot)) continue;
    segment.lent.push_back(slot);
    lent_blocks.push_back(t.block());
  }
  for (size_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    const int index = static_cast<int>(i);
    const bool is_lent = std::count(segment.lent.begin(), segment.lent.end(), index) > 0;
    slot.internal |= !slot.block->has_memory() && slot.made &&
                     slot.block.use_count() <= References(index) + allowed[i] + is_lent;
    slot.lent |= is_lent;
  }
  if (!rewrites_.empty() && obstacle_.empty()) RewriteWaiting();
  segment.nodes = nodes_.size();
  const std::span<const Node> nodes(nodes_.data() + ran_, nodes_.size() - ran_);
  segment.memory = PlanSegment(
      nodes,
      [&](const Block* block) {
        const int slot = SlotOf(block);
        return slot >= 0 && slots_[static_cast<size_t>(slot)].internal && !block->has_memory();
      },
      lent_blocks);
  arena_->Reserve(segment.memory.bytes);
  for (const SegmentMemory::Place& place : segment.memory.blocks)
    place.block->Bind(arena_->data() + place.offset);
  for (const Node& node : nodes) {
    std::vector<LayoutPtr>& layouts = layouts_.emplace_back();
    for (const auto* tensors : {&node.inputs, &node.outputs})
      for (const Tensor& t : *tensors) layouts.push_back(t.empty() ? nullptr : t.layout());
  }
  segments_.push_back(std::move(segment));
  const std::vector<size_t>& workspaces = segments_.back().memory.workspaces;
  for (size_t i = 0; i < nodes.size(); ++i) {
    ++ran_;  // also where it raises: what comes after it is lost
    for (const Tensor& t : nodes[i].outputs)
      if (!t.empty()) t.block()->data();  // takes its memory, before threads ask
    device_->Run(nodes[i], arena_->data() + workspaces[i]);
  }
}

void Recording::RewriteWaiting() {
  const auto first = nodes_.begin() + static_cast<std::ptrdiff_t>(ran_);
  std::vector<Node> nodes(std::make_move_iterator(first), std::make_move_iterator(nodes_.end()));
  nodes_.erase(first, nodes_.end());
  Mention(nodes, -1);
  for (const Rewrite rewrite : rewrites_) nodes = rewrite(*this, std::move(nodes));
  Mention(nodes, 1);
  std::move(nodes.begin(), nodes.end(), std::back_inserter(nodes_));
}

void Recording::RunForHost() {
  SetObstacle(std::string("the step looks at results before it has ended, after ") +
              (nodes_.size() > ran_ ? nodes_.back().op : "the start"));
  try {
    RunWaiting({});
  } catch (...) {
    ran_ = nodes_.size();
    throw;
  }
}

void Recording::Listen(bool listen) {
  Check<std::logic_error>(!t_recording || t_recording == this, "graph",
                          "this thread is recording already");
  t_recording = listen ? this : nullptr;
}

void Recording::RunAll() {
  if (runs_again_) RunAgain();
  RunWaiting({});
  runs_again_ = true;
}

void Recording::RunAgain() {
  const Executing executing;
  StopWaiting();  // what comes next runs right after
  for (const Segment& segment : segments_)
    for (const SegmentMemory::Place& place : segment.memory.blocks)
      if (slots_[static_cast<size_t>(SlotOf(place.block.get()))].internal)
        place.block->Bind(arena_->data() + place.offset);  // the arena may have grown since
  const size_t drawn = segments_.empty() ? 0 : segments_.back().draws;
  for (size_t i = 0; i < drawn; ++i) {
    Scalars scalars;
    device_->TakeRandom(draws_[i].count, &scalars);
    draws_[i].seed = scalars.seed;
    draws_[i].offset = scalars.offset;
  }
  size_t n = 0;
  for (const Segment& segment : segments_)
    for (size_t begin = n; n < segment.nodes; ++n) {
      Node& node = nodes_[n];
      if (node.random >= 0) {
        node.scalars.seed = draws_[static_cast<size_t>(node.random)].seed;
        node.scalars.offset = draws_[static_cast<size_t>(node.random)].offset;
      }
      auto layout = layouts_[n].begin();
      for (const auto* tensors : {&node.inputs, &node.outputs})
        for (const Tensor& t : *tensors) {
          if (!t.empty()) t.block()->MakeLayout(*layout);
          ++layout;
        }
      for (const Tensor& t : node.outputs)
        if (!t.empty()) t.block()->Touch();
      device_->Run(node, arena_->data() + segment.memory.workspaces[n - begin]);
    }
}

void Recording::Pause(const std::vector<Tensor>& lent) {
  Check(active_ && t_recording == this, "graph", "this thread does not record");
  t_recording = nullptr;
  try {
    RunWaiting(lent);
  } catch (...) {
    Abandon();
    throw;
  }
}

void Recording::Resume() {
  Check(active_ && !t_recording, "graph", "the recording is not paused");
  for (int slot : segments_.back().lent) {
    const Slot& lent = slots_[static_cast<size_t>(slot)];
    constexpr long kPlaceAndHost = 2;  // its place in the arena, and the host's call
    if (!lent.internal || lent.block.use_count() <= References(slot) + kPlaceAndHost) continue;
    lent.block->OwnMemory();
    SetObstacle("a gradient is kept beyond the optimizer's step");
  }
  t_recording = this;
}

void Recording::Finish(const std::vector<Tensor>& outputs) {
  Check(active_ && t_recording == this, "graph", "this thread does not record");
  try {
    RunWaiting({});
  } catch (...) {
    Abandon();
    throw;
  }
  outputs_ = outputs;
  t_recording = nullptr;
  active_ = false;
}

void Recording::Replace(std::vector<Node> preparation, std::vector<std::vector<Node>> segments) {
  Check(!active_ && segments.size() == segments_.size(), "graph", segments.size(), " segments for ",
        segments_.size());
  preparation_ = std::move(preparation);
  nodes_.clear();
  for (size_t i = 0; i < segments.size(); ++i) {
    std::move(segments[i].begin(), segments[i].end(), std::back_inserter(nodes_));
    segments_[i].nodes = nodes_.size();
  }
  const std::vector<Slot> before = std::exchange(slots_, {});
  const std::unordered_map<const Block*, int> slot_before = std::exchange(slot_of_, {});
  mentions_.clear();
  const auto keep = [&](const Tensor& t) {
    const auto known = t.empty() ? slot_before.end() : slot_before.find(t.block().get());
    if (known != slot_before.end()) Enter(before[static_cast<size_t>(known->second)]);
  };
  for (const Tensor& t : inputs_) keep(t);
  for (const Tensor& t : outputs_) keep(t);
  for (const auto* list : {&preparation_, &nodes_}) {
    for (const Node& node : *list)
      for (const auto* tensors : {&node.inputs, &node.outputs})
        for (const Tensor& t : *tensors) keep(t);
    Mention(*list, 1);
  }
  for (Segment& segment : segments_)
    for (int& lent : segment.lent) lent = SlotOf(before[static_cast<size_t>(lent)].block.get());
}

void Recording::Abandon() noexcept {
  if (!active_) return;
  if (t_recording == this) t_recording = nullptr;
  active_ = false;
  SetObstacle("it did not end");
  StopWaiting();
}

}  // namespace singa
