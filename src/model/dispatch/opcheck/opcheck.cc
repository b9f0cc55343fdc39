#include "model/dispatch/opcheck/opcheck.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "core/graph/node_observer.h"
#include "core/graph/recorded_step.h"
#include "model/dispatch/checked_run.h"
#include "model/dispatch/kernel.h"
#include "model/dispatch/op_type.h"
#include "model/dispatch/opcheck/replay_file.h"
#include "model/dispatch/spot/spot_check.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa {
namespace {

thread_local int t_paused = 0;
/// A saved call that this thread runs again.
struct Replaying {
  bool compared = false;
};
thread_local Replaying* t_replaying = nullptr;

std::mutex g_mutex;
OpcheckOptions g_options;                       // guarded by g_mutex
std::map<std::string, OpcheckOpStats> g_stats;  // guarded by g_mutex
/// By operation, kernel, and why it is refused.
std::map<std::tuple<std::string, std::string, std::string>, OpcheckKernelStats>
    g_kernel_stats;  // guarded by g_mutex

std::atomic<int64_t>& Every() {
  static std::atomic<int64_t> every = EnvironmentNumber("SINGA_OPCHECK");
  return every;
}
std::atomic<uint64_t> g_calls{0};  // of operations that OPCHECK is on for
std::atomic<uint64_t> g_seen{0};

constexpr NodeObserver kObserver{
    opcheck::IsOn,
    [](const Node& node, const std::function<void()>& run) {
      return opcheck::IsOn() ? opcheck::RunNode(node, run) : spot::RunNode(node, run);
    },
    spot::IsTurn,
};
[[maybe_unused]] const bool kObserving = (SetNodeObserver(&kObserver), true);

}  // namespace

void SetOpcheck(const OpcheckOptions& options) {
  Check(options.every >= 0, "opcheck", "every must be 0 or more, got ", options.every);
  std::lock_guard<std::mutex> lock(g_mutex);
  g_options = options;
  Every().store(options.every);
  g_calls.store(0);
}

OpcheckOptions GetOpcheck() {
  std::lock_guard<std::mutex> lock(g_mutex);
  OpcheckOptions options = g_options;
  options.every = Every().load();
  return options;
}

std::vector<OpcheckOpStats> GetOpcheckStats() {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<OpcheckOpStats> stats;
  for (const auto& [op, row] : g_stats) stats.push_back(row);
  return stats;
}

std::vector<OpcheckKernelStats> GetOpcheckKernelStats() {
  std::lock_guard<std::mutex> lock(g_mutex);
  std::vector<OpcheckKernelStats> stats;
  for (const auto& [key, row] : g_kernel_stats) stats.push_back(row);
  return stats;
}

void ResetOpcheckStats() {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_stats.clear();
  g_kernel_stats.clear();
  g_seen.store(0);
}
uint64_t OpcheckSeen() { return g_seen.load(); }

std::string ReplayCall(const std::vector<std::string>& names,
                       const std::vector<std::string>& values,
                       const std::vector<std::string>& tensor_names,
                       const std::vector<Tensor>& tensors) {
  backend::EnsureRegistered();
  const opcheck::Call call = opcheck::ReadCall(names, values, tensor_names, tensors);
  const OpType* type = FindOpType(call.family);
  Check(type && type->read, "replay", "the file holds an operation that this build does not have");
  Replaying replaying;
  const std::string layer = CurrentLayer();
  const auto restore = [&](void*) {
    t_replaying = nullptr;
    SetCurrentLayer(layer);
  };
  const std::unique_ptr<Replaying, decltype(restore)> scope(&replaying, restore);
  t_replaying = &replaying;
  SetCurrentLayer(call.layer);
  const std::string report = opcheck::Replay(*type, call);
  Check(replaying.compared, "replay", report, " gave nothing that could be compared");
  return report + " agrees with reference";
}

namespace opcheck {

/// Whether OPCHECK looks at what runs now.
static bool IsLooking() {
  if (!IsOn()) [[likely]]
    return false;
  if (t_paused > 0 || RecordedStep::Current()) return false;  // recorded ones: when they run
  g_seen.fetch_add(1, std::memory_order_relaxed);
  return true;
}

/// Whether it is the turn of a call for which `is_named(name)` is true for a name in the options.
template <class IsNamed>
static bool IsTurnOf(const IsNamed& is_named) {
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    const std::vector<std::string>& ops = g_options.ops;
    if (!ops.empty() && std::none_of(ops.begin(), ops.end(), is_named)) return false;
  }
  const auto every = static_cast<uint64_t>(std::max<int64_t>(Every().load(), 1));
  return g_calls.fetch_add(1) % every == 0;
}

bool IsEnabledFor(const char* op, const Plan& plan) {
  if (!IsLooking()) [[likely]]
    return false;
  if (std::strcmp(plan.implementation(), kReference) == 0) return false;
  return IsTurnOf([&](const std::string& name) { return name == op; });
}

bool IsEnabledForMerged(const char* op) {
  if (!IsLooking()) return false;
  const std::string parts = "+" + std::string(op) + "+";
  return IsTurnOf(
      [&](const std::string& name) { return parts.find("+" + name + "+") != std::string::npos; });
}

Pause::Pause() { ++t_paused; }
Pause::~Pause() { --t_paused; }
bool IsPaused() { return t_paused > 0; }

bool IsOn() { return Every().load(std::memory_order_relaxed) > 0; }

std::string ReplayDirectory() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_options.replay_directory;
}

void CountUncompared(const char* op) {
  std::lock_guard<std::mutex> lock(g_mutex);
  OpcheckOpStats& stats = g_stats[op];
  stats.op = op;
  ++stats.uncompared;
}

void Report(const Call& call, std::span<const Tensor> chosen, const Difference& difference) {
  if (!difference.compared) return CountUncompared(call.op);
  const double worst = difference.ratio;
  if (t_replaying) t_replaying->compared = true;
  bool raise = true;
  std::string directory;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    OpcheckOpStats& stats = g_stats[call.op];
    stats.op = call.op;
    ++stats.checked;
    stats.failed += worst > 1;
    stats.worst_ratio = std::max(stats.worst_ratio, worst);
    raise = g_options.raise;
    directory = g_options.replay_directory;
  }
  if (worst <= 1) return;
  std::string message = detail::Message(call.op, call.description, " disagrees with reference");
  if (!call.layer.empty()) message += " in layer " + call.layer;
  message += ": " + difference.text + "; inputs";
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i < call.input_names.size()) message += " " + call.input_names[i];
    message += " " + call.inputs[i].ToString() + ",";
  }
  message.back() = '.';
  if (t_replaying) throw OpcheckMismatch(message);
  if (!call.family.empty())
    message += " Run again: python -m singa replay " + WriteReplayFile(call, chosen, directory);
  if (raise) throw OpcheckMismatch(message);
  std::fprintf(stderr, "singa: %s\n", message.c_str());
}

bool ChecksEveryKernel() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return g_options.every_kernel;
}

void CountKernel(const Call& call, const Candidate& candidate, const Difference& difference) {
  if (!difference.compared) return;
  std::string example;
  if (difference.ratio > 1) {
    for (const auto& [name, value] : call.fields) example += name + "=" + value + " ";
    example += difference.text;
  }
  std::lock_guard<std::mutex> lock(g_mutex);
  OpcheckKernelStats& stats = g_kernel_stats[{call.op, candidate.name, candidate.defect}];
  stats.op = call.op;
  stats.kernel = candidate.name;
  stats.refused = candidate.defect;
  ++stats.checked;
  stats.failed += difference.ratio > 1;
  stats.worst_ratio = std::max(stats.worst_ratio, difference.ratio);
  if (stats.example.empty()) stats.example = std::move(example);
}

}  // namespace opcheck
}  // namespace singa
