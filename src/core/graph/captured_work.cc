#include "core/graph/captured_work.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/graph/node_observer.h"
#include "core/statistics/counted_reorder.h"
#include "singa/core/stats.h"

namespace singa {

namespace {

/// A node with this many elements fills a GPU: 128 multiprocessors, with a tile of 128 x 128 each.
constexpr int64_t kFills = int64_t{1} << 21;
/// Runs of a plan behind which captured work is worth more than another check at once.
constexpr uint32_t kFirstRuns = 4;

}  // namespace

CapturedWork::~CapturedWork() = default;
Capturer::~Capturer() = default;
JointPlan::~JointPlan() = default;

CapturedNodes::CapturedNodes(Device& device, Capturer& capturer, std::span<const Node> nodes)
    : device_(device), capturer_(capturer), nodes_(nodes), alone_(nodes.size()) {
  for (const Node& node : nodes) {
    const bool reorders = std::string_view(node.op) == "Reorder";
    reorders_.push_back(reorders ? Reorders{1, static_cast<uint64_t>(node.outputs[0].bytes())}
                                 : Reorders{});
    if (dynamic_cast<const JointPlan*>(node.plan.get())) are_watched_ = false;
  }
}

bool CapturedNodes::Start(std::vector<const void*> addresses) {
  const bool observed = IsProfiling() || AreReordersRecorded() || WatchingObserver();
  if (observed || !capturer_.captures()) return false;
  if (addresses == addresses_) return !CountRuns();
  work_.clear();
  addresses_ = std::move(addresses);
  return false;
}

/// Counts a run of each captured node whose plan is watched. Where one of these runs is looked at,
/// it counts none and returns true: then the nodes run one by one.
bool CapturedNodes::CountRuns() {
  const NodeObserver* observer = are_watched_ ? InstalledObserver() : nullptr;
  if (!observer) return false;
  std::vector<Plan::Watch*> watched;
  bool due = false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Plan::Watch& watch = nodes_[i].plan->watch();
    if (!alone_[i].empty() || !watch.on.load(std::memory_order_relaxed)) continue;
    watched.push_back(&watch);
    const uint32_t run = watch.runs.fetch_add(1, std::memory_order_relaxed) + 1;
    due |= run > kFirstRuns && observer->is_turn(run);
  }
  if (due)
    for (Plan::Watch* watch : watched) watch->runs.fetch_sub(1, std::memory_order_relaxed);
  are_watched_ = !watched.empty();
  return due;
}

void CapturedNodes::Queue(size_t begin, size_t end, char* arena,
                          std::span<const size_t> workspaces) {
  const Workspace workspace = [=, first = begin](size_t i) {
    return arena + workspaces[i - first];
  };
  while (begin < end) {
    size_t stop = begin;
    while (stop < end && alone_[stop].empty()) ++stop;
    if (stop - begin < 2) {  // not to be captured, or a single node between two such nodes
      device_.Run(nodes_[begin], workspace(begin));
      ++begin;
    } else if (Launch(begin, stop, workspace)) {
      begin = stop;
    }
  }
}

/// Nodes share bytes through blocks, and through places of the arena that are used again.
StreamSchedule CapturedNodes::PlanOf(size_t begin, size_t end, const Workspace& workspace) const {
  std::vector<Step> steps;
  for (size_t i = begin; i < end; ++i) {
    const Node& node = nodes_[i];
    Step& step = steps.emplace_back();
    step.uses.push_back({workspace(i), node.plan->workspace_bytes(), true});
    for (const auto* tensors : {&node.inputs, &node.outputs})
      for (const Tensor& t : *tensors) {
        if (t.empty()) continue;
        step.uses.push_back({t.block()->data(), t.block()->size(), tensors == &node.outputs});
        step.fills |= t.size() >= kFills;
      }
  }
  return PlanStreams(steps, capturer_.branches());
}

CapturedNodes::Joint CapturedNodes::JointOf(size_t begin, size_t end) const {
  Joint joint;
  for (size_t i = begin; i < end; ++i) {
    const auto* plan = dynamic_cast<const JointPlan*>(nodes_[i].plan.get());
    if (!plan) continue;
    if (!joint.first) joint.first = plan;
    joint.text += plan->Text(nodes_[i]);
    joint.layouts = joint.layouts * 31 + plan->Layouts(nodes_[i]);
  }
  return joint;
}

/// Returns false if some of the nodes cannot be captured; `alone_` then says why.
bool CapturedNodes::Launch(size_t begin, size_t end, const Workspace& workspace) {
  Captured& captured = work_[begin];
  if (!captured.work) captured.joint = JointOf(begin, end);
  if (Joint& joint = captured.joint; joint.first) {
    const uint64_t agreed =
        joint.first->AgreeToLaunch(device_, joint.text, joint.layouts, joint.agreed);
    if (agreed == 0) {  // the next time all capture together
      captured = {};
      for (size_t i = begin; i < end; ++i) device_.Run(nodes_[i], workspace(i));
      return true;
    }
    if (!captured.work) joint.agreed = agreed;
  }
  if (captured.work) {
    CountReorders(captured.reorders.count, captured.reorders.bytes);
  } else {
    StreamSchedule plan{.after = {}, .count = 1, .longest = end - begin};
    if (capturer_.branches() > 1) plan = PlanOf(begin, end, workspace);
    size_t node = begin;
    try {
      const UnobservedScope unobserved;
      captured.work = capturer_.Capture([&] {
        for (; node < end; ++node) {
          if (plan.count > 1) capturer_.CaptureAfter(plan.after[node - begin]);
          const auto run = [&] { device_.Run(nodes_[node], workspace(node)); };
          const bool live = nodes_[node].live || nodes_[node].random >= 0;
          if (!live) {
            run();
          } else {
            capturer_.CaptureLive(nodes_[node].scalars, run);
          }
        }
      });
    } catch (const NotCapturable& reason) {
      // If no node has failed, the whole has: all of its nodes are then queued one by one.
      if (node < end) begin = node, end = node + 1;
      for (node = begin; node < end; ++node)
        alone_[node] = std::string(nodes_[node].op) + ": " + reason.what();
      return false;
    }
    captured.nodes = end - begin;
    captured.branches = plan.count;
    captured.longest = plan.longest;
    captured.reorders = {};
    for (node = begin; node < end; ++node) {
      captured.reorders.count += reorders_[node].count;
      captured.reorders.bytes += reorders_[node].bytes;
    }
  }
  captured.work->Launch();
  if (const Joint& joint = captured.joint; joint.first) joint.first->Launched(device_);
  return true;
}

std::set<std::string> CapturedNodes::why_alone() const {
  std::set<std::string> reasons(alone_.begin(), alone_.end());
  reasons.erase("");
  return reasons;
}

size_t CapturedNodes::branches() const {
  size_t branches = 0;
  for (const auto& [begin, captured] : work_)
    if (captured.work) branches = std::max(branches, captured.branches);
  return branches;
}

size_t CapturedNodes::longest() const {
  size_t longest = nodes_.size();
  for (const auto& [begin, captured] : work_)
    if (captured.work) longest -= captured.nodes - captured.longest;
  return longest;
}

}  // namespace singa
