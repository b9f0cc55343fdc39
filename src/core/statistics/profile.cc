#include "core/statistics/profile.h"

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>

#include "core/statistics/uncounted.h"
#include "core/tensor/stored_size.h"

namespace singa {
namespace {

std::atomic<bool> g_profiling{false};
std::mutex g_mutex;
std::vector<ProfileRecord> g_records;  // guarded by g_mutex
int g_threads = 0;                     // likewise: that have recorded something
thread_local int t_thread = -1;
thread_local const char* t_op = "";
thread_local std::string t_layer;

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

uint64_t BytesOf(std::span<const Tensor> tensors) {
  uint64_t bytes = 0;
  for (const Tensor& t : tensors)
    if (!t.empty()) bytes += StoredBytes(t);
  return bytes;
}

/// Index of the input that shares its block with `output`, or -1.
int TakenBy(const Tensor& output, std::span<const Tensor> inputs) {
  for (size_t i = 0; i < inputs.size() && !output.empty(); ++i)
    if (!inputs[i].empty() && inputs[i].block() == output.block()) return static_cast<int>(i);
  return -1;
}

void AppendShapes(std::span<const Tensor> tensors, std::string* text) {
  constexpr size_t kMost = 4;  // an optimizer has hundreds of tensors
  for (size_t i = 0; i < tensors.size() && i < kMost; ++i) {
    if (i > 0) *text += ' ';
    *text += ShapeOf(tensors[i]);
  }
  if (tensors.size() > kMost) *text += " ... " + std::to_string(tensors.size());
}

void Append(ProfileRecord record) {
  std::lock_guard<std::mutex> lock(g_mutex);
  if (t_thread < 0) t_thread = g_threads++;
  record.thread = t_thread;
  g_records.push_back(std::move(record));
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

void RecordProfile(const std::string& op, const std::string& implementation,
                   const std::string& shapes, uint64_t bytes, double start) {
  ProfileRecord record;
  record.op = op;
  record.layer = CurrentLayer();
  record.implementation = implementation;
  record.shapes = shapes;
  record.start = start;
  record.milliseconds = ProfileClock() - start;
  record.bytes = bytes;
  Append(std::move(record));
}

void RecordProfile(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs, int64_t multiply_adds, double start) {
  const double end = ProfileClock();
  ProfileRecord record;
  record.op = op;
  record.layer = CurrentLayer();
  record.implementation = plan->Describe();
  record.shapes = ShapesOf(inputs, outputs);
  record.start = start;
  record.milliseconds = end - start;
  record.workspace = plan->workspace_bytes();
  record.bytes = BytesOf(inputs) + BytesOf(outputs);
  record.multiply_adds = multiply_adds;
  record.plan = plan;
  record.inputs = EachShapeOf(inputs);
  record.outputs = EachShapeOf(outputs);
  for (const Tensor& output : outputs) record.takes.push_back(TakenBy(output, inputs));
  Append(std::move(record));
}

void SetProfiling(bool enable) { g_profiling.store(enable); }
bool IsProfiling() { return g_profiling.load(std::memory_order_relaxed) && !IsUncounted(); }

std::vector<ProfileRecord> TakeProfile() {
  std::lock_guard<std::mutex> lock(g_mutex);
  return std::exchange(g_records, {});
}

const char* CurrentOp() { return t_op; }
void SetCurrentOp(const char* op) { t_op = op; }

const std::string& CurrentLayer() { return t_layer; }
void SetCurrentLayer(const std::string& name) { t_layer = name; }

}  // namespace singa
