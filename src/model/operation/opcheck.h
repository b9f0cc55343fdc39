#pragma once

// OPCHECK: runs an operation on its chosen implementation and on `reference`, and compares.
//
// A Spec may help; every one of these is optional.
//
// - `int64_t sum_length() const`: length K of the sums behind one result; the tolerance grows with
//   √K.
// - `static constexpr bool kLinear`: results are sums of products of the inputs. The tolerance then
//   follows reference(|inputs|), elementwise, instead of the largest result.
// - `void MakeMagnitude()`: makes the constant factors of a kLinear copy positive.
// - `std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const`: where results cancel
//   otherwise, what the tolerance follows, for each output (empty: the largest result).
// - `void MakeReference()`: changes fields of a copy for the reference (which implementation saved
//   ...).
// - `void ReferenceInputs(std::vector<Tensor>*) const`: replaces inputs in an implementation's
//   private form by the reference's own.
// - `bool comparable(size_t output) const`: false for outputs in a private form.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "model/operation/kernel.h"
#include "singa/core/device.h"
#include "singa/core/opcheck.h"
#include "singa/core/stats.h"

namespace singa::opcheck {

/// True when this call is to be compared with `reference`.
bool Wanted(const char* op, const Plan& plan);

/// One operation with all that is needed to run it again.
struct Call {
  const char* op = "";
  std::string family;          ///< key of the replayer: the Spec's type
  std::string implementation;  ///< of the plan
  std::string description;
  std::string layer;
  std::vector<std::pair<std::string, std::string>> fields;  ///< of the Spec, in order
  std::vector<Tensor> inputs;                               ///< plain, as they were before
  std::vector<Tensor> outputs;                              ///< only type and shape matter
  std::vector<int> aliases;  ///< input that the output shares memory with, or -1
  Scalars scalars;
};

/// Compares outputs (plain); `bound` holds the magnitude that multiplies the tolerance,
/// elementwise, or is empty. Counts; a difference saves the call and raises or warns, as the
/// options say.
void Compare(const Call& call, std::span<const Tensor> chosen, std::span<const Tensor> reference,
             std::span<const Tensor> bound, int64_t sum_length);

/// Every value of a plane (last two axes) becomes the largest there.
void SpreadOverPlanes(std::span<Tensor> bound);

/// |t|, contiguous; integers and bool unchanged.
Tensor AbsoluteValue(const Tensor& t);

/// Where `reference` runs: the device itself where that is a CPU, else the default one.
inline DevicePtr HostOf(const DevicePtr& device) {
  return device->kind() == DeviceKind::kCpu ? device : DefaultDevice();
}
/// A copy on the host, in a layout that `reference` reads as well as any other.
inline Tensor HostCopy(const Tensor& t) {
  if (t.empty()) return t;
  return t.device()->kind() == DeviceKind::kCpu ? t.Clone() : t.ToDevice(DefaultDevice());
}

/// While one lives, no operation of this thread is checked: the checking itself runs operations.
class Pause {
 public:
  Pause();
  ~Pause();
};

/// What OPCHECK does with operations of one Spec whose type it does not know.
struct Family {
  std::function<std::string(const Call&)> replay;  ///< what it was, when it agrees
  /// As RunNodeChecked.
  std::function<bool(const Node&, const std::function<void()>&)> run_node;
};
/// `spec` is the Spec's type.
void AddFamily(const std::string& spec, Family family);

/// Writes fields as text.
struct FieldWriter {
  std::vector<std::pair<std::string, std::string>>* fields;
  void operator()(const char* name, const LayoutPtr& layout) {
    fields->emplace_back(name, LayoutName(layout));
  }
  void operator()(const char* name, const Shape& shape) {
    fields->emplace_back(name, shape.ToString());
  }
  void operator()(const char*, const Recorder& recorder) { recorder.Visit(*this); }
  template <class T>
  void operator()(const char* name, const T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      char text[64];
      std::snprintf(text, sizeof(text), "%.17g", static_cast<double>(value));
      fields->emplace_back(name, text);
    } else {
      fields->emplace_back(name, std::to_string(static_cast<int64_t>(value)));
    }
  }
};

/// Reads them back; layouts become plain.
struct FieldReader {
  const std::vector<std::pair<std::string, std::string>>* fields;
  size_t next = 0;
  const std::string& Take(const char* name);
  void operator()(const char* name, LayoutPtr& layout) { Take(name), layout = nullptr; }
  void operator()(const char* name, Shape& shape);
  void operator()(const char*, Recorder& recorder) { recorder.Visit(*this); }
  template <class T>
  void operator()(const char* name, T& value) {
    if constexpr (std::is_floating_point_v<T>) {
      value = std::strtod(Take(name).c_str(), nullptr);
    } else {
      value = static_cast<T>(std::strtoll(Take(name).c_str(), nullptr, 10));
    }
  }
};

/// Makes every layout of a Spec plain.
struct PlainFields {
  void operator()(const char*, LayoutPtr& layout) { layout = nullptr; }
  template <class T>
  void operator()(const char*, T&) {}
};

/// The reference's results for a call, on the host, where `inputs` are; empty tensors where they
/// cannot be compared.
template <class Spec>
std::vector<Tensor> RunReference(Spec spec, const DevicePtr& device, std::vector<Tensor> inputs,
                                 std::span<const Tensor> outputs, const std::vector<int>& aliases,
                                 const Scalars& scalars) {
  PlainFields plain;
  Spec::VisitFields(spec, plain);
  if constexpr (requires { spec.MakeReference(); }) spec.MakeReference();
  if constexpr (requires { spec.ReferenceInputs(&inputs); }) spec.ReferenceInputs(&inputs);
  const Kernel<Spec>* kernel = Registry<Spec>::Get().Find("reference");
  if (!kernel || !kernel->Refuses(spec).empty()) return {};
  const PlanPtr plan = kernel->MakePlan(spec);
  std::vector<Tensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) {
      results.emplace_back();
    } else if (aliases[i] >= 0) {
      results.push_back(inputs[static_cast<size_t>(aliases[i])]);
    } else if (const size_t bytes = plan->private_bytes(i)) {
      results.emplace_back(Shape{static_cast<int64_t>(bytes)}, device, kUChar);
    } else {
      results.emplace_back(outputs[i].shape(), device, outputs[i].data_type());
    }
  }
  device->Exec(spec.op(), plan, inputs, results, scalars);
  if constexpr (requires { spec.comparable(0); })
    for (size_t i = 0; i < results.size(); ++i)
      if (!spec.comparable(i)) results[i] = Tensor();
  return results;
}

/// Runs `plan` by `execute`, then compares. What the program sees is what `plan` computed, bit for
/// bit.
template <class Spec>
void RunChecked(const Spec& spec, const DevicePtr& device, const PlanPtr& plan,
                std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Scalars& scalars, const std::function<void()>& execute) {
  const Pause pause;
  Call call;
  call.op = spec.op();
  call.family = typeid(Spec).name();
  call.implementation = plan->implementation();
  call.description = plan->Describe();
  call.layer = CurrentLayer();
  call.scalars = scalars;
  FieldWriter writer{&call.fields};
  Spec::VisitFields(spec, writer);
  for (const Tensor& input : inputs) call.inputs.push_back(HostCopy(input));
  for (const Tensor& output : outputs) {
    call.outputs.push_back(output);
    int alias = -1;
    for (size_t j = 0; j < inputs.size() && !output.empty(); ++j)
      if (!inputs[j].empty() && inputs[j].block() == output.block()) alias = static_cast<int>(j);
    call.aliases.push_back(alias);
  }
  execute();

  std::vector<Tensor> copies;  // the reference may write to its inputs
  for (const Tensor& input : call.inputs) copies.push_back(input.empty() ? input : input.Clone());
  const DevicePtr host = HostOf(device);
  const std::vector<Tensor> reference =
      RunReference(spec, host, copies, outputs, call.aliases, scalars);
  if (reference.empty()) return;
  std::vector<Tensor> bound;
  if constexpr (requires { requires Spec::kLinear; }) {
    std::vector<Tensor> magnitudes;
    for (const Tensor& input : call.inputs)
      magnitudes.push_back(input.empty() ? input : AbsoluteValue(input));
    Spec magnitude = spec;
    if constexpr (requires { magnitude.MakeMagnitude(); }) magnitude.MakeMagnitude();
    bound = RunReference(magnitude, host, magnitudes, outputs, call.aliases, scalars);
  } else if constexpr (requires { spec.Magnitudes(call.inputs); }) {
    bound = spec.Magnitudes(call.inputs);
  }
  if (plan->spreads_error()) SpreadOverPlanes(bound);
  int64_t length = 1;
  if constexpr (requires { spec.sum_length(); }) length = spec.sum_length();
  std::vector<Tensor> chosen;
  for (const Tensor& output : outputs)
    chosen.push_back(output.empty() ? output : output.Plain().ToDevice(host));
  Compare(call, chosen, reference, bound, length);
}

/// A saved call of this Spec, run again.
template <class Spec>
std::string Replay(const Call& call) {
  Spec spec{};
  FieldReader reader{&call.fields};
  Spec::VisitFields(spec, reader);
  const DevicePtr device = DefaultDevice();
  const Kernel<Spec>* kernel = Registry<Spec>::Get().Find(call.implementation);
  Check(kernel != nullptr, "replay", "this build has no ", call.implementation, " for ", spec.op());
  const std::string reason = kernel->Refuses(spec);
  Check(reason.empty(), "replay", call.implementation, " refuses: ", reason);
  const PlanPtr plan = kernel->MakePlan(spec);
  std::vector<Tensor> inputs, outputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& t = call.inputs[i];
    const LayoutPtr layout = t.empty() ? nullptr : plan->input_layout(i);
    inputs.push_back(layout ? t.ToLayout(layout) : t);
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Tensor& t = call.outputs[i];
    if (t.empty()) {
      outputs.emplace_back();
    } else if (call.aliases[i] >= 0) {
      outputs.push_back(inputs[static_cast<size_t>(call.aliases[i])]);
    } else if (const LayoutPtr layout = plan->output_layout(i)) {
      outputs.emplace_back(device, layout);
    } else {
      outputs.emplace_back(t.shape(), device, t.data_type());
    }
  }
  RunChecked(spec, device, plan, inputs, outputs, call.scalars,
             [&] { device->Exec(spec.op(), plan, inputs, outputs, call.scalars); });
  return std::string(spec.op()) + " on " + plan->Describe();
}

/// A recorded operation of this Spec, compared as it runs.
template <class Spec>
bool RunNode(const Node& node, const std::function<void()>& run) {
  const Spec& spec = *node.SpecAs<Spec>();
  if (!Wanted(spec.op(), *node.plan)) return false;
  SetCurrentLayer(node.layer);
  const auto written = std::find_if(node.outputs.begin(), node.outputs.end(),
                                    [](const Tensor& t) { return !t.empty(); });
  RunChecked(spec, written->device(), node.plan, node.inputs, node.outputs, node.scalars, run);
  return true;
}

/// Lets RunNodeChecked and ReplayFile do theirs with this Spec.
template <class Spec>
void RegisterSpec() {
  AddFamily(typeid(Spec).name(), {Replay<Spec>, RunNode<Spec>});
}

}  // namespace singa::opcheck
