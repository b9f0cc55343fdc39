#include "singa/core/device.h"

#include <functional>

#include "core/device/poison.h"
#include "core/graph/node_observer.h"
#include "core/graph/recorded_step.h"
#include "core/memory/workspace.h"
#include "core/statistics/profile.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

/// A function of the user. It holds the name of its operation, to which nodes refer.
class UserFunction final : public Plan {
 public:
  UserFunction(const std::function<void(const BlockPointers&)>& fn, const char* op)
      : Plan("user"), fn_(fn), op_(op) {}
  const char* op() const { return op_.c_str(); }
  void Run(const Execution& execution) const override {
    BlockPointers pointers;
    for (const Tensor& t : execution.inputs) pointers.reads.push_back(t.raw_data());
    for (const Tensor& t : execution.outputs) pointers.writes.push_back(t.raw_data());
    fn_(pointers);
  }

 private:
  std::function<void(const BlockPointers&)> fn_;
  std::string op_;
};

/// The bytes of each block, which becomes plain.
std::vector<Tensor> BytesOf(const char* op, const char* what, const std::vector<BlockPtr>& blocks) {
  std::vector<Tensor> bytes;
  for (const BlockPtr& block : blocks) {
    Check(block != nullptr, op, "a block to ", what, " is null");
    block->MakePlain();
    const Shape shape = {static_cast<int64_t>(block->size())};
    bytes.emplace_back(block, shape, ContiguousStrides(shape), 0, DType::kUInt8);
  }
  return bytes;
}

}  // namespace

Device::Device(DeviceKind kind, int id, std::string name)
    : kind_(kind), id_(id), name_(std::move(name)) {}

void Device::CheckOpen(const char* op) const {
  if (closed_)
    throw Unavailable(detail::Message(op, "device ", name_, " was closed; its tensors are gone"));
}

void* Device::AllocateCopy(const void* host_data, size_t bytes) {
  void* data = Allocate(bytes);
  CopyFromHost(data, host_data, bytes);
  return data;
}

inline void Device::RunNow(const char* op, const Plan& plan, const Execution& execution) {
  if (IsPoisoning()) [[unlikely]]
    Poison(execution, plan.workspace_bytes());
  plan.Run(execution);
  if (kind_ != DeviceKind::kCpu) Queued(op);
}

void Device::Exec(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                  std::span<const Tensor> outputs, const Scalars& scalars, const SpecRef& spec) {
  CheckOpen(op);
  if (RecordedStep* step = RecordedStep::Current(); step && step->device().get() == this) {
    step->Append(op, plan, inputs, outputs, scalars, spec);
    return;
  }
  Workspace workspace(*this, plan->workspace_bytes());
  for (const Tensor& output : outputs)
    if (!output.empty()) output.block()->Touch();
  const Execution execution{*this, inputs, outputs, scalars, workspace.data()};
  if (!IsProfiling()) [[likely]] {
    RunNow(op, *plan, execution);
    return;
  }
  Sync();
  const double start = ProfileClock();
  RunNow(op, *plan, execution);
  Sync();
  const int64_t multiply_adds =
      spec.type && spec.type->multiply_adds ? spec.type->multiply_adds(spec.spec) : 0;
  RecordProfile(op, plan, inputs, outputs, multiply_adds, start);
}

void Device::Run(const Node& node, void* workspace) {
  const bool watched = node.plan->watch().on.load(std::memory_order_relaxed);
  if (const NodeObserver* observer = watched ? InstalledObserver() : WatchingObserver())
      [[unlikely]] {
    const auto execute = [&] { RunUnchecked(node, workspace); };
    if (observer->run(node, execute)) return;
  }
  RunUnchecked(node, workspace);
}

void Device::RunUnchecked(const Node& node, void* workspace) {
  CheckOpen(node.op);
  SetCurrentOp(*node.wanted_by ? node.wanted_by : node.op);
  const Execution execution{*this, node.inputs, node.outputs, node.scalars, workspace};
  if (!IsProfiling()) [[likely]] {
    RunNow(node.op, *node.plan, execution);
    return;
  }
  SetCurrentLayer(node.layer);
  Sync();
  const double start = ProfileClock();
  RunNow(node.op, *node.plan, execution);
  Sync();
  if (!*node.wanted_by)  // reorders record themselves
    RecordProfile(node.op, node.plan, node.inputs, node.outputs, node.multiply_adds, start);
}

void Device::Exec(const std::function<void(const BlockPointers&)>& fn,
                  const std::vector<BlockPtr>& reads, const std::vector<BlockPtr>& writes,
                  const char* op) {
  CheckOpen(op);
  RecordedStep::SetObstacleOf(*this, "the step runs a function of the user on the device");
  const std::vector<Tensor> inputs = BytesOf(op, "read", reads);
  const std::vector<Tensor> outputs = BytesOf(op, "write", writes);
  const auto function = std::make_shared<UserFunction>(fn, op);
  if (RecordedStep* step = RecordedStep::Current(); step && step == buffer().get()) {
    step->Append(function->op(), function, inputs, outputs, {}, {});
    return;
  }
  for (const Tensor& output : outputs) output.block()->Touch();
  const Scalars scalars;
  function->Run({*this, inputs, outputs, scalars, nullptr});
}

void Device::SetRandSeed(uint64_t seed) {
  RecordedStep::SetObstacleOf(*this, "the step sets the random seed");
  std::lock_guard<std::mutex> lock(random_mutex_);
  seed_ = seed;
  position_ = 0;
}

void Device::TakeRandom(uint64_t count, Scalars* scalars) {
  std::lock_guard<std::mutex> lock(random_mutex_);
  scalars->seed = seed_;
  scalars->offset = position_;
  position_ += count;
  static std::atomic<uint64_t> draws{0};
  scalars->draw = ++draws;
  if (RecordedStep* step = RecordedStep::Current(); step && step->device().get() == this)
    step->AddDraw({count, scalars->seed, scalars->offset, scalars->draw});
}

std::vector<uint64_t> Device::random_state() const {
  std::lock_guard<std::mutex> lock(random_mutex_);
  return {seed_, position_};
}

void Device::set_random_state(const std::vector<uint64_t>& state) {
  Check(state.size() == 2, "random_state", "a state has two numbers, got ", state.size());
  RecordedStep::SetObstacleOf(*this, "the step sets the random state");
  std::lock_guard<std::mutex> lock(random_mutex_);
  seed_ = state[0];
  position_ = state[1];
}

std::shared_ptr<RecordedStep> Device::buffer() const {
  const std::lock_guard<std::mutex> lock(buffer_mutex_);
  return buffer_;
}

bool Device::graph_enabled() const { return buffering_.load() == std::this_thread::get_id(); }

void Device::CheckBuffers() const {
  Check<std::logic_error>(buffering_.load() == std::thread::id() || graph_enabled(), "graph",
                          "another thread buffers operations of ", name_);
}

void Device::EnableGraph(bool enable) {
  if (enable == graph_enabled()) return;
  CheckBuffers();
  if (const std::shared_ptr<RecordedStep> present = buffer()) {
    present->Listen(enable);
  } else {
    const auto made = std::make_shared<RecordedStep>(shared_from_this(), nullptr);
    made->Start({});
    const std::lock_guard<std::mutex> lock(buffer_mutex_);
    buffer_ = made;
  }
  buffering_ = enable ? std::this_thread::get_id() : std::thread::id();
}

void Device::RunGraph(bool) {
  CheckBuffers();
  if (const std::shared_ptr<RecordedStep> present = buffer()) present->RunAll();
}

void Device::ResetGraph() {
  CheckBuffers();
  const bool enabled = graph_enabled();
  EnableGraph(false);
  std::shared_ptr<RecordedStep> forgotten;
  {
    const std::lock_guard<std::mutex> lock(buffer_mutex_);
    forgotten.swap(buffer_);
  }
  if (forgotten) forgotten->Abandon();
  EnableGraph(enabled);
}

void Device::Close() {
  Check(this != DefaultDevice().get(), "close", "the default device cannot be closed");
  Check(exports_ == 0, "close", "NumPy or DLPack still hold memory of ", name_);
  EnableGraph(false);
  ResetGraph();
  if (closed_.exchange(true)) return;
  ReleaseAll();
}

}  // namespace singa
