#include "core/profile.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "singa/core/opcheck.h"

namespace singa {
namespace {

std::atomic<bool> g_profiling{false};
std::mutex g_mutex;
std::vector<ProfileRecord> g_records;  // guarded by g_mutex
thread_local const char* t_op = "";

std::string ShapeOf(const Tensor& t) {
  if (t.empty()) return "-";
  const std::string shape = t.shape().ToString();
  return t.layout() ? shape + ":" + LayoutName(t.layout()) : shape;
}

std::vector<std::string> EachShapeOf(std::span<const Tensor> tensors) {
  std::vector<std::string> shapes;
  for (const Tensor& t : tensors) shapes.push_back(ShapeOf(t));
  return shapes;
}

/// The input whose memory `output` has, or -1.
int TakenBy(const Tensor& output, std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size() && !output.empty(); ++i)
    if (!inputs[i].empty() && inputs[i].block() == output.block()) return static_cast<int>(i);
  return -1;
}

void AppendShapes(std::span<const Tensor> tensors, std::string* text) {
  constexpr size_t kMost = 4;  // an optimizer has hundreds
  for (size_t i = 0; i < tensors.size() && i < kMost; ++i) {
    if (i > 0) *text += ' ';
    *text += ShapeOf(tensors[i]);
  }
  if (tensors.size() > kMost) *text += " ... " + std::to_string(tensors.size());
}

}  // namespace

double ProfileClock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(now).count();
}

std::string ShapesOf(std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  std::string text;
  AppendShapes(inputs, &text);
  text += " -> ";
  AppendShapes(outputs, &text);
  return text;
}

void RecordProfile(const char* op, const std::string& implementation, const std::string& shapes,
                   double start, size_t workspace) {
  const double end = ProfileClock();
  std::lock_guard<std::mutex> lock(g_mutex);
  g_records.push_back(
      {op, CurrentLayer(), implementation, shapes, start, end - start, workspace, {}, {}, {}, {}});
}

void RecordProfile(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs, double start) {
  const double end = ProfileClock();
  ProfileRecord record{op,
                       CurrentLayer(),
                       plan->Describe(),
                       ShapesOf(inputs, outputs),
                       start,
                       end - start,
                       plan->workspace_bytes(),
                       plan,
                       EachShapeOf(inputs),
                       EachShapeOf(outputs),
                       {}};
  for (const Tensor& output : outputs) record.takes.push_back(TakenBy(output, inputs));
  std::lock_guard<std::mutex> lock(g_mutex);
  g_records.push_back(std::move(record));
}

void SetProfiling(bool enable) { g_profiling.store(enable); }
bool IsProfiling() { return g_profiling.load(std::memory_order_relaxed); }

std::vector<ProfileRecord> TakeProfile() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return std::exchange(g_records, {});
}

const char* CurrentOp() { return t_op; }
void SetCurrentOp(const char* op) { t_op = op; }

}  // namespace singa
