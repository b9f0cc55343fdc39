#include "model/dispatch/opcheck.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

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
OpcheckOptions g_options;                             // guarded by g_mutex
std::map<std::string, OpcheckOpStats> g_stats;        // guarded by g_mutex
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
    const auto found = Families().find(node.spec_type->name());
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

void ResetOpcheckStats() {
  std::lock_guard<std::mutex> lock(g_mutex);
  g_stats.clear();
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
    Check(found != Families().end(), "replay",
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

bool IsEnabledFor(const char* op, const Plan& plan) {
  const int64_t every = Every().load(std::memory_order_relaxed);
  if (every == 0) [[likely]]
    return false;
  if (t_paused > 0 || RecordedStep::Current()) return false;  // recorded ones: when they run
  g_seen.fetch_add(1, std::memory_order_relaxed);
  if (std::strcmp(plan.implementation(), "reference") == 0) return false;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    if (!g_options.ops.empty() &&
        std::find(g_options.ops.begin(), g_options.ops.end(), op) == g_options.ops.end())
      return false;
  }
  return g_calls.fetch_add(1) % static_cast<uint64_t>(every) == 0;
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

void SpreadOverPlanes(std::span<Tensor> bound) {
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

void Compare(const Call& call, std::span<const Tensor> chosen, std::span<const Tensor> reference,
             std::span<const Tensor> bound, int64_t sum_length) {
  double worst = 0;
  std::string worst_text;
  bool compared = false;
  for (size_t i = 0; i < chosen.size() && i < reference.size(); ++i) {
    if (chosen[i].empty() || reference[i].empty() || chosen[i].size() == 0) continue;
    compared = true;
    const std::vector<double> got = Values(chosen[i]), want = Values(reference[i]);
    std::vector<double> scale;
    if (i < bound.size() && !bound[i].empty()) scale = Values(bound[i]);
    const bool spreads =
        std::any_of(scale.begin(), scale.end(), [](double v) { return !std::isfinite(v); });
    double largest = 0;
    for (double v : want)
      if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
    // Each side may have an error of 8·eps·√K, and rounds its result once more.
    const double tolerance =
        IsFloat(chosen[i].data_type())
            ? 16 * Epsilon(chosen[i].data_type()) *
                  std::sqrt(static_cast<double>(std::max<int64_t>(sum_length, 1)))
            : 0;
    for (size_t j = 0; j < got.size(); ++j) {
      if (got[j] == want[j] || (std::isnan(got[j]) && std::isnan(want[j]))) continue;
      const double allowed = tolerance * (scale.empty() ? largest : std::abs(scale[j])) + 1e-37;
      // Where terms are infinite or NaN, implementations differ: some leave out the padding,
      // others spread the terms over their tiles, or multiply them by zeros of padded filters.
      if (!std::isfinite(allowed) || (spreads && !std::isfinite(got[j]))) continue;
      const double difference = std::abs(got[j] - want[j]);
      const double ratio = std::isfinite(difference) ? difference / allowed
                                                     : std::numeric_limits<double>::infinity();
      if (ratio <= worst) continue;
      worst = ratio;
      if (ratio > 1) {
        std::ostringstream text;
        text.precision(9);
        text << "output " << i << " at " << Position(static_cast<int64_t>(j), chosen[i].shape())
             << " of " << chosen[i].shape() << ": " << got[j] << ", reference " << want[j]
             << ", allowed difference " << allowed;
        worst_text = text.str();
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
      worst_text = text.str();
    }
  }
  if (!compared) return CountUncompared(call.op);
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
  message += ": " + worst_text + "; inputs";
  for (const Tensor& t : call.inputs) message += " " + t.ToString() + ",";
  message.back() = '.';
  if (t_replaying) throw OpcheckMismatch(message);
  message += " Run again: python -m singa replay " + WriteReplayFile(call, chosen, directory);
  if (raise) throw OpcheckMismatch(message);
  std::fprintf(stderr, "singa: %s\n", message.c_str());
}

}  // namespace opcheck
}  // namespace singa
