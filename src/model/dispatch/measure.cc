#include "model/dispatch/measure.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/graph/capture.h"
#include "core/graph/eager_scope.h"
#include "core/memory/workspace.h"
#include "core/statistics/profile.h"
#include "core/statistics/reorder_hook.h"
#include "core/tensor/stored_size.h"
#include "model/dispatch/opcheck/opcheck.h"
#include "singa/core/tensor.h"

namespace singa {
namespace {

constexpr double kEnough = 20;  // milliseconds of samples, of which there are at least three
constexpr int kMost = 15;       // samples at most
constexpr double kBatch = 1;    // milliseconds between two waits for a device

Tensor New(const DevicePtr& device, const Shape& shape, DType dtype, const LayoutPtr& layout) {
  return layout ? Tensor(device, layout) : Tensor(shape, device, dtype);
}

/// Values in [-1, 1) that repeat after a while. Padding is written, too, since the results are not
/// used.
void FillRandomly(const Tensor& t) {
  constexpr size_t kPeriod = 65521;  // a prime: rows of an image do not repeat one another
  static const std::vector<double> values = [] {
    std::vector<double> random(kPeriod);
    uint64_t state = 1;
    for (double& value : random) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      value = static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63;
    }
    return random;
  }();
  Tensor wide(Shape{static_cast<int64_t>(kPeriod)}, DefaultDevice(), kFloat64);
  wide.CopyFromHost(values.data(), kPeriod * sizeof(double));
  const Tensor pattern = wide.AsType(t.data_type()).ToDevice(t.device());
  const size_t period = kPeriod * SizeOf(t.data_type()), bytes = StoredBytes(t);
  char* to = static_cast<char*>(t.raw_data());
  for (size_t at = 0; at < bytes; at += period)
    t.device()->CopyBytes(to + at, pattern.raw_data(), std::min(period, bytes - at));
}

/// A reorder before or after the operation.
struct Move {
  Tensor from, to;
  void Run(const DevicePtr& device) const {
    Reorder(device, from.layout(), to.layout(), from.shape(), from.data_type(), from.raw_data(),
            to.raw_data());
  }
};

/// The work that queue() gives to the device, as one launch; null where the device cannot do that.
std::unique_ptr<CapturedWork> Capture(Device& device, const std::function<void()>& queue) {
  auto* capturer = dynamic_cast<Capturer*>(&device);
  if (!capturer || !capturer->captures()) return nullptr;
  try {
    return capturer->Capture(queue);
  } catch (const NotCapturable&) {
    return nullptr;
  }
}

}  // namespace

void MeasuredArguments::VisitInput(const char* name, const Shape& shape, DType dtype,
                                   const ArgumentTraits& traits) {
  if (traits.left_out) return;
  call.inputs.push_back({.name = name,
                         .shape = shape,
                         .dtype = dtype,
                         .layout = traits.layout ? *traits.layout : nullptr,
                         .absent = !traits.given});
}

void MeasuredArguments::VisitOutput(const char* name, const Shape& shape, DType dtype,
                                    const ArgumentTraits& traits) {
  call.outputs.push_back({.name = name, .shape = shape, .dtype = dtype, .absent = !traits.given});
}

Stopwatch::Stopwatch(DevicePtr device, MeasuredCall call)
    : device_(std::move(device)), call_(std::move(call)) {}

double Stopwatch::Time(const Plan& plan, double best) const {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const EagerScope executing;
  const opcheck::Pause pause;  // a check of a reorder would take longer than the reorder
  std::vector<Tensor> inputs, outputs;
  std::vector<Move> before, after;
  for (const MeasuredTensor& t : call_.inputs) {
    if (t.absent) {
      inputs.emplace_back();
      continue;
    }
    const LayoutPtr wanted = plan.input_layout(inputs.size());
    inputs.push_back(New(device_, t.shape, t.dtype, wanted));
    FillRandomly(inputs.back());
    if (t.settled || SameLayout(t.layout, wanted)) continue;
    const Tensor as_it_comes = New(device_, t.shape, t.dtype, t.layout);
    FillRandomly(as_it_comes);
    before.push_back({as_it_comes, inputs.back()});
  }
  for (const MeasuredTensor& t : call_.outputs) {
    if (t.absent) {
      outputs.emplace_back();
      continue;
    }
    const LayoutPtr made = plan.output_layout(outputs.size());
    outputs.push_back(New(device_, t.shape, t.dtype, made));
    for (const LayoutPtr& reader : t.readers)
      if (!SameLayout(made, reader))
        after.push_back({outputs.back(), New(device_, t.shape, t.dtype, reader)});
    // A reorder to row-major takes as long as one to any other layout.
    if (!t.likely.empty() && LayoutName(made) != t.likely)
      after.push_back({outputs.back(), Tensor(t.shape, device_, t.dtype)});
  }
  const Workspace workspace(*device_, plan.workspace_bytes());
  const Scalars scalars;
  const Execution execution{*device_, inputs, outputs, scalars, workspace.data()};
  int repeats = 1;
  const auto queue = [&] {
    for (int i = 0; i < repeats; ++i) {
      for (const Move& move : before) move.Run(device_);
      plan.Run(execution);
      for (const Move& move : after) move.Run(device_);
    }
  };
  std::unique_ptr<CapturedWork> work;
  const auto once = [&] {
    const double start = ProfileClock();
    work ? work->Launch() : queue();
    device_->Sync();
    return (ProfileClock() - start) / repeats;
  };

  double cold = once();
  if (device_->kind() != DeviceKind::kCpu) {
    cold = once();  // the first launch has loaded the kernel, so its time does not count
    // Waiting for the device costs as much as a small kernel, and queueing a kernel may take the
    // host longer than the kernel runs. So several are launched as a whole, as in a replayed step.
    repeats = std::clamp(static_cast<int>(kBatch / std::max(cold, 1e-3)), 1, 20);
    work = Capture(*device_, queue);
    if (work) once();
    cold = once();
  }
  if (cold > 2.5 * best) return cold;
  std::vector<double> samples;
  double total = 0;
  const size_t least = cold > 5 * kEnough ? 2 : 3;
  while (samples.size() < least || (total < kEnough && samples.size() < kMost)) {
    samples.push_back(once());
    total += samples.back();
    if (samples.back() > 1.2 * best) break;
  }
  const auto median = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
  std::nth_element(samples.begin(), median, samples.end());
  return *median;
}

}  // namespace singa
