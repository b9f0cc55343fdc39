#include "model/dispatch/opcheck.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <tuple>

#include "core/graph/node_observer.h"
#include "core/graph/recorded_step.h"
#include "model/dispatch/replay_file.h"
#include "singa/core/environment.h"
#include "singa/core/error.h"

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
    g_kernel_stats;                                   // guarded by g_mutex
std::map<std::string, opcheck::Family>& Families() {  // guarded by g_mutex
  static auto& families = *new std::map<std::string, opcheck::Family>;
  return families;
}

std::atomic<int64_t>& Every() {
  static std::atomic<int64_t> every = EnvironmentNumber("SINGA_OPCHECK");
  return every;
}
std::atomic<uint64_t> g_calls{0};  // of operations that OPCHECK is on for
std::atomic<uint64_t> g_seen{0};

double Epsilon(DType dtype) {
  switch (dtype) {
    case kDouble:
      return std::numeric_limits<double>::epsilon();
    case kBFloat16:
      return 0x1p-7;
    case kFloat16:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

std::vector<double> Values(const Tensor& t) {
  std::vector<double> values(static_cast<size_t>(t.size()));
  if (!values.empty()) t.AsType(kDouble).CopyToHost(values.data(), values.size() * sizeof(double));
  return values;
}

/// Runs a recorded operation by `execute`, and compares.
bool RunNode(const Node& node, const std::function<void()>& execute) {
  if (!node.spec_type) return false;
  opcheck::Family family;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    const auto found = Families().find(node.spec_type->id->name());
    if (found == Families().end()) return false;
    family = found->second;
  }
  return family.run_node(node, execute);
}

constexpr NodeObserver kObserver{
    [] { return Every().load(std::memory_order_relaxed) > 0; },
    RunNode,
};

std::string Position(int64_t flat, const Shape& shape) {
  Shape index = shape;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[i] = flat % shape[i];
    flat /= shape[i];
  }
  return index.ToString();
}

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
  opcheck::Family family;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    const auto found = Families().find(call.family);
    Check(found != Families().end() && found->second.replay, "replay",
          "the file holds an operation that this build does not have");
    family = found->second;
  }
  Replaying replaying;
  const std::string layer = CurrentLayer();
  const auto restore = [&](void*) {
    t_replaying = nullptr;
    SetCurrentLayer(layer);
  };
  const std::unique_ptr<Replaying, decltype(restore)> scope(&replaying, restore);
  t_replaying = &replaying;
  SetCurrentLayer(call.layer);
  const std::string report = family.replay(call);
  Check(replaying.compared, "replay", report, " gave nothing that could be compared");
  return report + " agrees with reference";
}

namespace opcheck {

/// Whether OPCHECK looks at what runs now.
static bool IsLooking() {
  if (Every().load(std::memory_order_relaxed) == 0) [[likely]]
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

void AddFamily(const std::string& spec, Family family) {
  SetNodeObserver(&kObserver);
  std::lock_guard<std::mutex> lock(g_mutex);
  Families()[spec] = std::move(family);
}

Tensor AbsoluteValue(const Tensor& t) {
  if (!IsFloat(t.data_type())) return t;
  std::vector<double> values = Values(t);
  for (double& v : values) v = std::abs(v);
  Tensor wide(t.shape(), t.device(), kDouble);
  if (!values.empty()) wide.CopyFromHost(values.data(), values.size() * sizeof(double));
  return wide.AsType(t.data_type());
}

std::vector<Tensor> OnHost(std::span<const Tensor> outputs) {
  std::vector<Tensor> host;
  for (const Tensor& t : outputs)
    host.push_back(t.empty() ? t : t.Plain().ToDevice(HostOf(t.device())));
  return host;
}

void CountUncompared(const char* op) {
  std::lock_guard<std::mutex> lock(g_mutex);
  OpcheckOpStats& stats = g_stats[op];
  stats.op = op;
  ++stats.uncompared;
}

bool IsSame(const Tensor& a, const Tensor& b) {
  return !a.empty() && a.block() == b.block() && a.offset() == b.offset() &&
         a.shape() == b.shape() && a.strides() == b.strides() && a.data_type() == b.data_type();
}

/// The error of a transform is larger than that of a plain sum: for convolutions two to nine times
/// (root mean square, benchmark/winograd.py). Where a sum has only a few terms, all of a tile has
/// up to four times the bound of a plain sum.
constexpr double kSpreadFactor = 8;

/// Every value becomes the largest of its plane (the last two axes).
static void SpreadOverPlanes(std::span<Tensor> bound) {
  for (Tensor& t : bound) {
    if (t.empty() || t.rank() < 2 || t.size() == 0) continue;
    const auto plane = static_cast<std::ptrdiff_t>(t.shape(-1) * t.shape(-2));
    std::vector<double> values = Values(t);
    for (auto first = values.begin(); first != values.end(); first += plane) {
      const bool finite =
          std::all_of(first, first + plane, [](double v) { return std::isfinite(v); });
      const double largest = finite ? *std::max_element(first, first + plane)
                                    : std::numeric_limits<double>::infinity();
      std::fill(first, first + plane, kSpreadFactor * largest);
    }
    t = Tensor(t.shape(), nullptr, kFloat64);
    t.CopyFromHost(values.data(), values.size() * sizeof(double));
  }
}

Difference FindDifference(std::span<const Tensor> chosen, const Expected& expected,
                          bool spreads_error) {
  const std::vector<Tensor>& reference = expected.results;
  std::vector<Tensor> bound = expected.bound;
  if (spreads_error) SpreadOverPlanes(bound);
  Difference difference;
  double& worst = difference.ratio;
  for (size_t i = 0; i < chosen.size() && i < reference.size(); ++i) {
    if (chosen[i].empty() || reference[i].empty() || chosen[i].size() == 0) continue;
    difference.compared = true;
    const std::vector<double> got = Values(chosen[i]), want = Values(reference[i]);
    std::vector<double> scale;
    if (i < bound.size() && !bound[i].empty()) scale = Values(bound[i]);
    const bool spreads =
        std::any_of(scale.begin(), scale.end(), [](double v) { return !std::isfinite(v); });
    double largest = 0;
    for (double v : want)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    // Each side may have an error of 8·eps·√K, and rounds its result once more. Where the terms are
    // known, 16-bit floats are summed in float32.
    const DType dtype = chosen[i].data_type();
    const bool wide = !scale.empty() && SizeOf(dtype) == 2;
    const double rounding = wide ? 4 * Epsilon(dtype) : 0;
    const double tolerance =
        IsFloat(dtype) && !expected.exact
            ? 16 * Epsilon(wide ? kFloat32 : dtype) *
                  std::sqrt(static_cast<double>(std::max<int64_t>(expected.sum_length, 1)))
            : 0;
    for (size_t j = 0; j < got.size(); ++j) {
      if (got[j] == want[j] || (std::isnan(got[j]) && std::isnan(want[j]))) continue;
      const double allowed =
          expected.exact ? 0
                         : tolerance * (scale.empty() ? largest : std::abs(scale[j])) +
                               (std::isfinite(want[j]) ? rounding * std::abs(want[j]) : 0) + 1e-37;
      // Where terms are infinite or NaN, implementations differ: some leave out the padding,
      // others spread the terms over their tiles, or multiply them by zeros of padded filters.
      if (!std::isfinite(allowed) || (spreads && !std::isfinite(got[j]))) continue;
      const double distance = std::abs(got[j] - want[j]);
      const double ratio =
          std::isfinite(distance) ? distance / allowed : std::numeric_limits<double>::infinity();
      if (ratio <= worst) continue;
      worst = ratio;
      if (ratio > 1) {
        std::ostringstream text;
        text.precision(9);
        text << "output " << i << " at " << Position(static_cast<int64_t>(j), chosen[i].shape())
             << " of " << chosen[i].shape() << ": " << got[j] << ", reference " << want[j]
             << ", allowed difference " << allowed;
        difference.text = text.str();
      }
    }
    const auto is_none = [](double v) { return !std::isfinite(v); };
    const auto lost = std::find_if(want.begin(), want.end(), is_none);
    if (std::isfinite(worst) && lost != want.end() &&
        std::none_of(got.begin(), got.end(), is_none)) {
      worst = std::numeric_limits<double>::infinity();
      std::ostringstream text;
      text << "output " << i << " holds only numbers, reference " << *lost << " at "
           << Position(lost - want.begin(), chosen[i].shape()) << " of " << chosen[i].shape();
      difference.text = text.str();
    }
  }
  return difference;
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
  for (const Tensor& t : call.inputs) message += " " + t.ToString() + ",";
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

void Poison(const Plan& plan, const Call& call, std::span<const Tensor> outputs) {
  const auto fill = [](const Tensor& t) {
    if (t.device()->kind() == DeviceKind::kCpu)
      std::memset(t.block()->data(), 0xFF, t.block()->size());
  };
  DevicePtr device;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    device = outputs[i].device();
    if (call.aliases[i] < 0) fill(outputs[i]);
  }
  const auto bytes = static_cast<int64_t>(plan.workspace_bytes());
  if (device && bytes > 0) fill(Tensor({bytes}, device, kUChar));
}

Call OwnMemory(Call call) {
  for (auto* tensors : {&call.inputs, &call.outputs})
    for (Tensor& t : *tensors)
      if (!t.empty()) t = t.Clone();
  return call;
}

bool WritesSameForms(const Plan& plan, const Call& call, const CallChecker& checked) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const auto bytes = static_cast<int64_t>(plan.private_bytes(i));
    if (checked.is_private(i) ? call.outputs[i].size() != bytes : bytes != 0) return false;
  }
  return true;
}

}  // namespace opcheck
}  // namespace singa
