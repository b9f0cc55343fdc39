#include "model/operation/measure.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "core/capture.h"
#include "core/executing.h"
#include "core/profile.h"
#include "core/reorder_hook.h"
#include "core/workspace.h"
#include "singa/core/tensor.h"

namespace singa {
namespace {

constexpr double kEnough = 20;  // milliseconds of samples, at least three of them ...
constexpr int kMost = 15;       // ... and no more than these
constexpr double kBatch = 1;    // milliseconds between two waits for a device

Tensor New(const DevicePtr& device, const Shape& shape, DType dtype, const LayoutPtr& layout) {
  return layout ? Tensor(device, layout) : Tensor(shape, device, dtype);
}

size_t BytesOf(const Tensor& t) {
  return t.layout() ? t.layout()->bytes() : static_cast<size_t>(t.bytes());
}

/// Values in [-1, 1) that repeat after a while. Padding is written too: nobody reads the results.
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
  const size_t period = kPeriod * SizeOf(t.data_type()), bytes = BytesOf(t);
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

/// What queue() asks of the device, to be launched as a whole; null where that cannot be.
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

Stopwatch::Stopwatch(DevicePtr device, MeasuredCall call)
    : device_(std::move(device)), call_(std::move(call)) {}

double Stopwatch::Time(const Plan& plan, double best) const {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);
  const Executing executing;
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
    // To row-major takes as long as to any other layout.
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
    cold = once();  // the first launch has loaded the kernel, which says nothing about its speed
    // Waiting for what was queued costs as much as a small kernel, and queueing it may take the
    // host longer than the kernel runs: several at a time, and launched as a whole, as in a step
    // that is replayed.
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
