#include "core/graph/recorded_step.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "core/graph/eager_scope.h"
#include "core/tensor/element_copy.h"
#include "singa/core/error.h"
#include "singa/core/graph.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

thread_local RecordedStep* t_step = nullptr;

class TurnOfStep final : public Plan {
 public:
  TurnOfStep() : Plan("core") {}
  void Run(const Execution& execution) const override {
    for (const Tensor& gradient : execution.outputs) execution.device.FillElements(gradient, 0);
  }
};

}  // namespace

const PlanPtr& TurnPlan() {
  static const PlanPtr& plan = *new PlanPtr(std::make_shared<TurnOfStep>());
  return plan;
}

RecordedStep::Slot TemporarySlot(const Tensor& t) {
  return {.block = t.block(), .layout = t.layout(), .made = true, .internal = true};
}

EagerScope::EagerScope() : step_(std::exchange(t_step, nullptr)), layer_(CurrentLayer()) {}

EagerScope::~EagerScope() {
  t_step = step_;
  SetCurrentLayer(layer_);
}

RecordedStep* RecordedStep::Current() { return t_step; }

void RecordedStep::SetObstacleOf(const Device& device, const char* obstacle) {
  if (t_step && t_step->device().get() == &device) t_step->SetObstacle(obstacle);
}

RecordedStep::RecordedStep(DevicePtr device, ArenaMemoryPtr arena)
    : device_(std::move(device)), arena_(std::move(arena)) {
  if (!device_) device_ = DefaultDevice();
  if (!arena_) arena_ = std::make_shared<ArenaMemory>(device_);
}

RecordedStep::~RecordedStep() { Abandon(); }

void RecordedStep::Start(const std::vector<Tensor>& inputs) {
  if (t_step) throw std::logic_error("[graph] this thread is recording already");
  for (const Tensor& input : inputs) {
    Check(!input.empty(), "graph", "an input is an empty tensor (None)");
    Check(!slot_of_.count(input.block().get()), "graph", "two inputs share memory");
    const int slot = UseSlot(input, false);
    slots_[static_cast<size_t>(slot)].input = slot;  // the first slots are the inputs
  }
  inputs_ = inputs;
  t_step = this;
  active_ = true;
}

void RecordedStep::SetObstacle(const std::string& obstacle) {
  if (obstacle_.empty()) obstacle_ = obstacle;
}

int RecordedStep::SlotOf(const Block* block) const {
  const auto found = slot_of_.find(block);
  return found == slot_of_.end() ? -1 : found->second;
}

int RecordedStep::UseSlot(const Tensor& t, bool write) {
  const bool made = write && !t.block()->has_memory();
  const int index = Enter({.block = t.block(), .layout = t.layout(), .made = made});
  Slot& slot = slots_[static_cast<size_t>(index)];
  if (write && !slot.written) {
    slot.written = true;
    for (const Tensor& read : host_reads_)
      if (read.block() == t.block()) SetObstacle("the step changes a tensor that the host reads");
  }
  if (slot.internal) {  // an earlier segment lent it, and the host has kept it
    slot.block->OwnMemory();
    slot.internal = false;
    SetObstacle("a gradient is used beyond the optimizer's step");
  }
  return index;
}

int RecordedStep::Enter(const Slot& slot) {
  const auto [place, fresh] =
      slot_of_.try_emplace(slot.block.get(), static_cast<int>(slots_.size()));
  if (fresh) {
    slots_.push_back(slot);
    mentions_.push_back(0);
  }
  return place->second;
}

void RecordedStep::Mention(const std::vector<Node>& nodes, long change) {
  for (const Node& node : nodes)
    for (const auto* tensors : {&node.inputs, &node.outputs})
      for (const Tensor& t : *tensors)
        if (!t.empty()) mentions_[static_cast<size_t>(Enter(TemporarySlot(t)))] += change;
}

void RecordedStep::Append(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                          std::span<const Tensor> outputs, const Scalars& scalars,
                          const SpecRef& spec) {
  Node node;
  node.op = op;
  node.plan = plan;
  node.inputs.assign(inputs.begin(), inputs.end());
  node.outputs.assign(outputs.begin(), outputs.end());
  node.scalars = scalars;
  if (spec.type) node.spec = spec.type->copy(spec.spec);
  node.spec_type = spec.type;
  if (spec.type && spec.type->multiply_adds)
    node.multiply_adds = spec.type->multiply_adds(spec.spec);
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

bool RecordedStep::RecordLayout(Block* block, const LayoutPtr& layout, const char* reason) {
  if (block->has_memory() || block->device() != device_) return false;
  const auto found = slot_of_.find(block);
  if (found == slot_of_.end()) return true;  // it has no contents yet
  // The nodes so far use a new block in the old layout. A reorder copies that block to this one.
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
  // The output is the block itself. The caller sets its layout when this returns.
  Node& node = nodes_.back();
  node.outputs.push_back(view(self));
  slot_of_[block] = static_cast<int>(slots_.size());
  slots_.push_back({.block = self, .layout = layout, .made = true});
  mentions_.push_back(1);
  block->set_waiting(true);
  return true;
}

long RecordedStep::References(int slot) const {
  return mentions_[static_cast<size_t>(slot)] + 1;  // those of nodes, and the slot's own
}

void RecordedStep::StopWaiting() noexcept {
  for (const Slot& slot : slots_) slot.block->set_waiting(false);
}

/// Plans the memory of the waiting nodes, as one segment.
void RecordedStep::PlanWaiting(const std::vector<Tensor>& lent) {
  const EagerScope executing;
  StopWaiting();
  Segment segment;
  segment.draws = draws_.size();
  std::vector<long> allowed(slots_.size(), 0);
  std::vector<BlockPtr> lent_blocks;
  for (const Tensor& t : lent) {
    const int slot = t.empty() ? -1 : SlotOf(t.block().get());
    if (slot < 0) continue;
    allowed[static_cast<size_t>(slot)] += 2;  // those of the list and of the host
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
  if (rewriter_ && obstacle_.empty()) RewriteWaiting();
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
}

void RecordedStep::RunPlanned() {
  Check(!segments_.empty(), "graph", "no segment was planned");
  const EagerScope executing;
  const std::vector<size_t>& workspaces = segments_.back().memory.workspaces;
  for (const size_t begin = ran_; ran_ < segments_.back().nodes;) {
    const Node& node = nodes_[ran_];
    const size_t workspace = workspaces[ran_ - begin];
    ++ran_;  // also if it throws: the nodes after it are lost
    for (const Tensor& t : node.outputs)
      if (!t.empty()) t.block()->data();  // allocates, before threads ask for it
    device_->Run(node, arena_->data() + workspace);
  }
}

void RecordedStep::RunWaiting(const std::vector<Tensor>& lent) {
  PlanWaiting(lent);
  RunPlanned();
}

void RecordedStep::RewriteWaiting() {
  const auto first = nodes_.begin() + static_cast<std::ptrdiff_t>(ran_);
  std::vector<Node> nodes(std::make_move_iterator(first), std::make_move_iterator(nodes_.end()));
  nodes_.erase(first, nodes_.end());
  Mention(nodes, -1);
  nodes = rewriter_(PassPhase::kSegment, *this, std::move(nodes));
  Mention(nodes, 1);
  std::move(nodes.begin(), nodes.end(), std::back_inserter(nodes_));
}

void RecordedStep::RunForHost() {
  SetObstacle(std::string("the step looks at results before it has ended, after ") +
              (nodes_.size() > ran_ ? nodes_.back().op : "the start"));
  try {
    RunWaiting({});
  } catch (...) {
    ran_ = nodes_.size();
    throw;
  }
}

bool RecordedStep::ReadByHost(const Tensor& t) {
  // Comparing more before each replay could take longer than a step.
  constexpr int64_t kMostBytes = 4096;
  constexpr size_t kMostReads = 64;
  const BlockPtr& block = t.block();
  if (!block->has_memory() || block->device() != device_) return false;
  const int slot = SlotOf(block.get());
  if (slot >= 0 && slots_[static_cast<size_t>(slot)].written) {
    SetObstacle("the step looks at results before it has ended");
    return false;
  }
  const auto same = [&](const Tensor& other) {
    return other.block() == block && other.shape() == t.shape() && other.strides() == t.strides() &&
           other.offset() == t.offset();
  };
  if (!active_ || std::any_of(host_reads_.begin(), host_reads_.end(), same)) return true;
  if (t.bytes() > kMostBytes || host_reads_.size() == kMostReads) {
    SetObstacle("the host reads the elements of " + t.ToString());
  } else {
    host_reads_.push_back(t);
  }
  return true;
}

void RecordedStep::KeepHostReads(size_t count) {
  if (host_reads_.size() > count)
    host_reads_.erase(host_reads_.begin() + static_cast<std::ptrdiff_t>(count), host_reads_.end());
}

void RecordedStep::Listen(bool listen) {
  Check<std::logic_error>(!t_step || t_step == this, "graph", "this thread is recording already");
  t_step = listen ? this : nullptr;
}

void RecordedStep::RunAll() {
  if (runs_again_) RunAgain();
  RunWaiting({});
  runs_again_ = true;
}

void RecordedStep::RunAgain() {
  const EagerScope executing;
  StopWaiting();  // the nodes that wait run right after these
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

void RecordedStep::Pause(const std::vector<Tensor>& lent, bool run) {
  Check(active_ && t_step == this, "graph", "this thread does not record");
  t_step = nullptr;
  try {
    PlanWaiting(lent);
    if (run) RunPlanned();
  } catch (...) {
    Abandon();
    throw;
  }
}

void RecordedStep::Resume() {
  Check(active_ && !t_step, "graph", "the recording is not paused");
  for (int slot : segments_.back().lent) {
    const Slot& lent = slots_[static_cast<size_t>(slot)];
    constexpr long kPlaceAndHost = 2;  // references of its place in the arena and of the host call
    if (!lent.internal || lent.block.use_count() <= References(slot) + kPlaceAndHost) continue;
    lent.block->OwnMemory();
    SetObstacle("a gradient is kept beyond the optimizer's step");
  }
  t_step = this;
}

std::vector<Tensor> RecordedStep::Turn(const std::vector<Tensor>& results) {
  Check(active_ && t_step == this, "graph", "this thread does not record");
  std::vector<Tensor> gradients;
  for (const Tensor& t : results) {
    Check(t.device() == device_, "graph", "a result is ", t, ", the step runs on ",
          device_->name());
    gradients.emplace_back(t.shape(), device_, t.data_type());
  }
  Append("Turn", TurnPlan(), results, gradients, {}, {});
  return gradients;
}

void RecordedStep::Finish(const std::vector<Tensor>& outputs, bool run) {
  Check(active_ && t_step == this, "graph", "this thread does not record");
  try {
    PlanWaiting({});
    if (run) RunPlanned();
  } catch (...) {
    Abandon();
    throw;
  }
  outputs_ = outputs;
  t_step = nullptr;
  active_ = false;
}

std::vector<Node> RecordedStep::NodesForGraph(size_t begin, size_t end) const {
  std::vector<Node> nodes(nodes_.begin() + static_cast<std::ptrdiff_t>(begin),
                          nodes_.begin() + static_cast<std::ptrdiff_t>(end));
  return rewriter_ ? rewriter_(PassPhase::kGraph, *this, std::move(nodes)) : nodes;
}

std::unique_ptr<RecordedStep> RecordedStep::Outline() const {
  auto outline = std::make_unique<RecordedStep>(device_, arena_);
  std::unordered_map<const Block*, BlockPtr> instead;
  const auto stand_in = [&](const BlockPtr& block) {
    BlockPtr& own = instead[block.get()];
    if (own) return own;
    own = std::make_shared<Block>(device_, nullptr, block->size(), nullptr);
    own->set_layout(block->layout());
    outline->originals_[own.get()] = block;
    return own;
  };
  const auto replace = [&](std::vector<Tensor>* tensors) {
    for (Tensor& t : *tensors)
      if (!t.empty()) t = t.On(stand_in(t.block()));
  };
  for (Node node : nodes_) {
    replace(&node.inputs);
    replace(&node.outputs);
    outline->nodes_.push_back(std::move(node));
  }
  for (const Segment& segment : segments_)
    outline->segments_.push_back(
        {.nodes = segment.nodes, .draws = segment.draws, .lent = segment.lent, .memory = {}});
  for (Slot slot : slots_) {
    slot.block = stand_in(slot.block);
    outline->slot_of_[slot.block.get()] = static_cast<int>(outline->slots_.size());
    outline->slots_.push_back(std::move(slot));
  }
  outline->outputs_ = outputs_;
  replace(&outline->outputs_);
  return outline;
}

bool RecordedStep::IsBlock(const BlockPtr& own, const BlockPtr& other) const {
  const auto original = originals_.find(own.get());
  return original == originals_.end() ? own == other : original->second.lock() == other;
}

void RecordedStep::Abandon() noexcept {
  if (!active_) return;
  if (t_step == this) t_step = nullptr;
  active_ = false;
  SetObstacle("it did not end");
  StopWaiting();
}

// The public class.

Recording::Recording(DevicePtr device, ArenaPtr arena)
    : step_(std::make_unique<RecordedStep>(std::move(device), arena ? arena->memory() : nullptr)) {}
Recording::Recording(std::unique_ptr<RecordedStep> step) : step_(std::move(step)) {}
Recording::~Recording() = default;
void Recording::Start(const std::vector<Tensor>& inputs) { step_->Start(inputs); }
void Recording::Pause(const std::vector<Tensor>& lent, bool run) { step_->Pause(lent, run); }
void Recording::Resume() { step_->Resume(); }
std::vector<Tensor> Recording::Turn(const std::vector<Tensor>& results) {
  return step_->Turn(results);
}
void Recording::Finish(const std::vector<Tensor>& outputs, bool run) {
  step_->Finish(outputs, run);
}
void Recording::RunPlanned() { step_->RunPlanned(); }
std::shared_ptr<Recording> Recording::Outline() const {
  return std::shared_ptr<Recording>(new Recording(step_->Outline()));
}
bool Recording::draws() const { return !step_->draws().empty(); }
void Recording::Abandon() noexcept { step_->Abandon(); }
const std::string& Recording::obstacle() const { return step_->obstacle(); }
std::vector<Tensor> Recording::host_reads() const { return step_->host_reads(); }
void Recording::KeepHostReads(size_t count) { step_->KeepHostReads(count); }
void Recording::SetObstacle(const std::string& obstacle) { step_->SetObstacle(obstacle); }

}  // namespace singa
