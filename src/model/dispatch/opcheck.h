#pragma once

// OPCHECK: runs an operation on its chosen implementation and on `reference`, and compares.
//
// A Spec that is compared has `CheckCall` (call_check.h). All of these are optional:
//
// - `int64_t sum_length() const`: length K of the sum that gives one result. The tolerance grows
//   with √K.
// - `static constexpr bool kLinear`: results are sums of products of the inputs. The tolerance then
//   follows reference(|inputs|), elementwise, instead of the largest result.
// - `void MakeMagnitude()`: makes the constant factors of a kLinear copy positive.
// - `std::vector<Tensor> Magnitudes(const std::vector<Tensor>& inputs) const`: for each output the
//   size of the terms that it sums, which the tolerance follows (empty: the largest result). For
//   results in which large terms cancel, and that are not kLinear. A second argument, `const
//   Scalars&`, gives the call's scalars.
// - `void MakeReference()`: changes fields of a copy for the reference, such as the form of a saved
//   tensor.
// - `void ReferenceInputs(std::vector<Tensor>*) const`: replaces inputs in an implementation's
//   private form by the reference's own.
// - `bool comparable(size_t output) const`: false for outputs in a private form.
// - `std::optional<std::vector<LayoutPtr>> InputLayouts(const Plan&, std::span<const Tensor>
// inputs)
//   const`: the layouts in which a plan reads its inputs as they lie in memory (null: row-major),
//   where Plan::input_layout does not tell; nothing where it follows strides.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "model/dispatch/call_check.h"
#include "model/dispatch/kernel.h"
#include "singa/core/device.h"
#include "singa/core/stats.h"
#include "singa/dispatch/opcheck.h"

namespace singa::opcheck {

/// True when this call is to be compared with `reference`.
bool IsEnabledFor(const char* op, const Plan& plan);
/// True when this node, which stands for several operations ("Mul+Tanh"), is to be compared.
bool IsEnabledForMerged(const char* op);

/// What `reference` computes for a call.
struct Expected {
  std::vector<Tensor> results;  ///< plain; none where `reference` does not take the call
  /// For each result the magnitude of the terms that each element sums, which the tolerance
  /// follows. Empty: the largest result.
  std::vector<Tensor> bound = {};
  int64_t sum_length = 1;
  bool exact = false;  ///< bit by bit, but for the bits of NaN
};
/// How far results are from the expected ones.
struct Difference {
  bool compared = false;  ///< false where there is nothing to compare
  double ratio = 0;       ///< the largest |difference| / tolerance
  std::string text = {};  ///< where that is, if it is above 1
};
/// Compares plain outputs of a plan. Integers have to be equal.
Difference FindDifference(std::span<const Tensor> chosen, const Expected& expected,
                          bool spreads_error = false);
/// Counts a comparison. A difference saves the call, and raises or warns, as the options say.
void Report(const Call& call, std::span<const Tensor> chosen, const Difference& difference);

/// Whether all implementations are to be compared, as OpcheckOptions::every_kernel says.
bool ChecksEveryKernel();
/// Counts a comparison for OpcheckKernelStats.
void CountKernel(const Call& call, const Candidate& candidate, const Difference& difference);

/// Counts a call that could not be compared.
void CountUncompared(const char* op);

/// |t|, contiguous; integers and bool unchanged.
Tensor AbsoluteValue(const Tensor& t);

/// Where `reference` runs: the device itself where that is a CPU, else the default one.
inline DevicePtr HostOf(const DevicePtr& device) {
  return device->kind() == DeviceKind::kCpu ? device : DefaultDevice();
}
/// A copy on the host. `reference` reads it in any layout.
inline Tensor HostCopy(const Tensor& t) {
  if (t.empty()) return t;
  return t.device()->kind() == DeviceKind::kCpu ? t.Clone() : t.ToDevice(DefaultDevice());
}

/// Whether both are the same view of one block.
bool IsSame(const Tensor& a, const Tensor& b);

/// The device on which a saved call runs. Raises std::invalid_argument where there is none.
DevicePtr DeviceOf(const Call& call);
/// The places of a strided tensor's elements, counted from its first one.
struct StridedSpan {
  int64_t low = 0, high = 0;
};
/// None where the tensor has so many gaps that a file does not keep its strides.
std::optional<StridedSpan> SpanOf(const Shape& shape, const Strides& strides);
/// A copy of `t` in this place.
Tensor Placed(const Tensor& t, const Placement& place, const DevicePtr& device);

/// A message where a saved call had an argument in another layout than the plan wants here; else
/// empty.
std::string ChangedPlace(const char* kind, size_t i, const Placement& place,
                         const LayoutPtr& wanted);

/// "plain", or a text from which LayoutFromText makes the same layout in another process.
std::string LayoutText(const LayoutPtr& layout);
/// Raises std::invalid_argument for other texts, and where no backend makes such a layout.
LayoutPtr LayoutFromText(const std::string& text);
/// As LayoutFromText; none where no backend makes such a layout.
std::optional<LayoutPtr> FindLayout(const std::string& text);
/// Makes the layout of this name, for tensors of this shape and type, or null. A backend adds one
/// for its layouts. Shape and type come from a file.
using LayoutMaker = LayoutPtr (*)(const std::string& name, const Shape& shape, DType dtype);
SINGA_API void AddLayoutMaker(const char* backend, LayoutMaker make);

/// From "(2, 3)", "(5,)", "()". Raises std::invalid_argument, with the name, for other texts.
Shape ShapeFromText(const char* name, std::string_view text);
/// The number that all of `text` is. Raises std::invalid_argument, with the name, for other texts.
template <class T>
T NumberFromText(const char* name, std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  Check(error == std::errc() && end == text.data() + text.size(), "replay", name, " is '", text,
        "', no number that it can be");
  return value;
}

/// While a Pause exists, no operation of this thread is checked. Checking itself runs operations.
class Pause {
 public:
  Pause();
  ~Pause();
};

/// What OPCHECK does with the operations of one Spec type.
struct Family {
  /// Runs a saved call again and compares. Returns a description of the call. Null: calls are not
  /// saved.
  std::function<std::string(const Call&)> replay;
  /// Runs a recorded operation and compares. Returns false, and does nothing, where OPCHECK is off
  /// for the operation.
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

/// As FieldWriter, with layouts as LayoutText.
struct CallWriter {
  std::vector<std::pair<std::string, std::string>>* fields;
  void operator()(const char* name, const LayoutPtr& layout) {
    fields->emplace_back(name, LayoutText(layout));
  }
  void operator()(const char*, const Recorder& recorder) { recorder.Visit(*this); }
  template <class T>
  void operator()(const char* name, const T& value) {
    FieldWriter{fields}(name, value);
  }
};

/// Reads what a CallWriter wrote. Raises std::invalid_argument for a field that is missing, and for
/// a value that its type does not have.
class FieldReader {
 public:
  explicit FieldReader(const std::vector<std::pair<std::string, std::string>>& fields)
      : fields_(fields) {}
  void operator()(const char* name, LayoutPtr& layout) { layout = LayoutFromText(Take(name)); }
  void operator()(const char* name, Shape& shape) { shape = ShapeFromText(name, Take(name)); }
  void operator()(const char*, Recorder& recorder) { recorder.Visit(*this); }
  template <class T>
  void operator()(const char* name, T& value) {
    if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(Integer(name, 0, kEnumSize<T> - 1));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = NumberFromText<T>(name, Take(name));
    } else {
      value = static_cast<T>(
          Integer(name, std::numeric_limits<T>::lowest(), std::numeric_limits<T>::max()));
    }
  }
  /// Every field was asked for.
  void Done() const;

 private:
  const std::string& Take(const char* name);
  int64_t Integer(const char* name, int64_t low, int64_t high);

  const std::vector<std::pair<std::string, std::string>>& fields_;
  size_t taken_ = 0;
};

/// Makes every layout of a Spec plain.
struct PlainFields {
  void operator()(const char*, LayoutPtr& layout) { layout = nullptr; }
  template <class T>
  void operator()(const char*, T&) {}
};

/// The reference's results for a call, on the host, where `inputs` are. A result that cannot be
/// compared is an empty tensor.
template <class Spec>
std::vector<Tensor> RunReference(Spec spec, const DevicePtr& device, std::vector<Tensor> inputs,
                                 std::span<const Tensor> outputs, const std::vector<int>& aliases,
                                 const Scalars& scalars) {
  PlainFields plain;
  Spec::VisitFields(spec, plain);
  if constexpr (requires { spec.MakeReference(); }) spec.MakeReference();
  if constexpr (requires { spec.ReferenceInputs(&inputs); }) spec.ReferenceInputs(&inputs);
  const Kernel* kernel = FindKernel<Spec>(kReference);
  const PlanPtr plan = kernel ? kernel->Make(spec).plan() : nullptr;
  if (!plan) return {};
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

/// Raises std::invalid_argument where the call does not fit the Spec.
template <class Spec>
CallChecker CheckCall(const char* op, const Spec& spec, const Call& call) {
  static_assert(ChecksCalls<Spec>, "a Spec needs its own CheckCall: call_check.h");
  CallChecker checker(op, call);
  spec.CheckCall(checker);
  checker.Done();
  return checker;
}

/// Plain copies on the host.
std::vector<Tensor> OnHost(std::span<const Tensor> outputs);

/// What `reference` computes for a call on the host.
template <class Spec>
Expected Expect(const Spec& spec, const DevicePtr& host, const Call& call) {
  // The reference may write to its inputs.
  const auto copies = [&](const auto& copy) {
    std::vector<Tensor> result;
    for (const Tensor& input : call.inputs) result.push_back(input.empty() ? input : copy(input));
    return result;
  };
  const auto run = [&](const Spec& run_spec, std::vector<Tensor> inputs) {
    return RunReference(run_spec, host, std::move(inputs), call.outputs, call.aliases,
                        call.scalars);
  };
  Expected expected;
  expected.results = run(spec, copies([](const Tensor& t) { return t.Clone(); }));
  if (expected.results.empty()) return expected;
  if constexpr (requires { requires Spec::kLinear; }) {
    Spec magnitude = spec;
    if constexpr (requires { magnitude.MakeMagnitude(); }) magnitude.MakeMagnitude();
    expected.bound = run(magnitude, copies(AbsoluteValue));
  } else if constexpr (requires { spec.Magnitudes(call.inputs); }) {
    expected.bound = spec.Magnitudes(call.inputs);
  } else if constexpr (requires { spec.Magnitudes(call.inputs, call.scalars); }) {
    expected.bound = spec.Magnitudes(call.inputs, call.scalars);
  }
  if constexpr (requires { spec.sum_length(); }) expected.sum_length = spec.sum_length();
  return expected;
}

/// Arguments of a call, in the places that a plan wants.
struct Arguments {
  std::vector<Tensor> inputs, outputs;
  std::string changed = {};  ///< what lies otherwise than in the call
};
template <class Spec>
Arguments ArgumentsFor(const Spec& spec, const Plan& plan, const Call& call,
                       const CallChecker& checked, const DevicePtr& device) {
  std::vector<LayoutPtr> wanted;
  bool as_they_lie = false;
  if constexpr (requires { spec.InputLayouts(plan, call.inputs); }) {
    if (auto layouts = spec.InputLayouts(plan, call.inputs)) {
      wanted = std::move(*layouts);
      as_they_lie = true;
    }
  }
  for (size_t i = wanted.size(); i < call.inputs.size(); ++i)
    wanted.push_back(plan.input_layout(i));
  Arguments arguments;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Placement place = call.input_places[i];
    if (!checked.keeps_places() &&
        (as_they_lie || wanted[i] || place.layout || !place.unmade.empty())) {
      arguments.changed += ChangedPlace("input", i, place, wanted[i]);
      place = {.layout = wanted[i]};
    }
    arguments.inputs.push_back(Placed(call.inputs[i], place, device));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const Tensor& t = call.outputs[i];
    if (t.empty()) {
      arguments.outputs.emplace_back();
    } else if (call.aliases[i] >= 0) {
      arguments.outputs.push_back(arguments.inputs[static_cast<size_t>(call.aliases[i])]);
    } else {
      Placement place = call.output_places[i];
      if (!checked.keeps_places()) {
        arguments.changed += ChangedPlace("output", i, place, plan.output_layout(i));
        place = {.layout = plan.output_layout(i)};
      }
      const auto bytes = static_cast<int64_t>(plan.private_bytes(i));
      Check(checked.is_private(i) ? t.size() == bytes : bytes == 0, "replay", "output ", i, " ", t,
            " is not what ", plan.Describe(), " writes");
      arguments.outputs.push_back(Placed(t, place, device));
    }
  }
  return arguments;
}

/// Fills the outputs that are new memory, and the memory that is likely to become the workspace,
/// with NaN: a kernel that reads what it has not written then gives NaN.
void Poison(const Plan& plan, const Call& call, std::span<const Tensor> outputs);
/// The call with copies of its arguments.
Call OwnMemory(Call call);
/// Whether the outputs that are in a form private to a plan have the form of this one.
bool WritesSameForms(const Plan& plan, const Call& call, const CallChecker& checked);

/// Compares every way of every kernel that takes the call.
template <class Spec>
void RunEveryKernel(const Spec& spec, const DevicePtr& device, const Call& call,
                    const CallChecker& checked, const Expected& expected) {
  for (const Kernel& kernel : KernelsOf<Spec>(device->kind())) {
    if (std::string_view(kernel.implementation) == kReference) continue;
    for (const Candidate& candidate : kernel.AllCandidates(spec)) {
      const PlanPtr plan = candidate.make();
      if (!WritesSameForms(*plan, call, checked)) continue;
      const Arguments arguments = ArgumentsFor(spec, *plan, OwnMemory(call), checked, device);
      Poison(*plan, call, arguments.outputs);
      device->Exec(spec.op(), plan, arguments.inputs, arguments.outputs, call.scalars);
      const std::vector<Tensor> results = OnHost(arguments.outputs);
      CountKernel(call, candidate, FindDifference(results, expected, plan->spreads_error()));
    }
  }
}

/// Runs `plan` by `execute`, then compares. The program gets the results of `plan`, bit for bit.
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
  call.device = device->kind();
  call.scalars = scalars;
  CallWriter writer{&call.fields};
  Spec::VisitFields(spec, writer);
  for (const Tensor& input : inputs) {
    call.inputs.push_back(HostCopy(input));
    call.input_places.push_back(Placement::Of(input));
  }
  for (const Tensor& output : outputs) {
    call.outputs.push_back(output);
    call.output_places.push_back(Placement::Of(output));
    int alias = -1;
    for (size_t j = 0; j < inputs.size(); ++j)
      if (IsSame(inputs[j], output)) alias = static_cast<int>(j);
    call.aliases.push_back(alias);
  }
  const CallChecker checker = CheckCall(spec.op(), spec, call);
  execute();

  const Expected expected = Expect(spec, HostOf(device), call);
  if (expected.results.empty()) return CountUncompared(call.op);
  const std::vector<Tensor> chosen = OnHost(outputs);
  if (ChecksEveryKernel()) RunEveryKernel(spec, device, call, checker, expected);
  Report(call, chosen, FindDifference(chosen, expected, plan->spreads_error()));
}

/// The plan of a saved call. Where this build does not make it, another plan of the same
/// implementation.
template <class Spec>
PlanPtr FindPlanOf(const Spec& spec, const Call& call) {
  const Kernel* kernel = FindKernel<Spec>(call.implementation, call.device);
  Check(kernel != nullptr, "replay", "this build has no ", call.implementation, " for ", spec.op());
  const PlanOrReason made = kernel->Make(spec);
  if (made && made.plan()->Describe() == call.description) return made.plan();
  PlanPtr nearest = made.plan();
  for (const Candidate& candidate : kernel->Candidates(spec)) {
    const PlanPtr plan = candidate.make();
    if (plan->Describe() == call.description) return plan;
    if (!nearest) nearest = plan;
  }
  Check(nearest != nullptr, "replay", call.implementation, " refuses: ", made.reason());
  return nearest;
}

/// Runs a saved call of this Spec again.
template <class Spec>
std::string Replay(const Call& call) {
  Spec spec{};
  FieldReader reader(call.fields);
  Spec::VisitFields(spec, reader);
  reader.Done();
  const CallChecker checked = CheckCall("replay", spec, call);
  const DevicePtr device = DeviceOf(call);
  const PlanPtr plan = FindPlanOf(spec, call);
  std::string changed;
  if (plan->Describe() != call.description) changed = " (the file is of " + call.description + ")";
  const Arguments arguments = ArgumentsFor(spec, *plan, call, checked, device);
  changed += arguments.changed;
  RunChecked(spec, device, plan, arguments.inputs, arguments.outputs, call.scalars, [&] {
    device->Exec(spec.op(), plan, arguments.inputs, arguments.outputs, call.scalars);
  });
  return std::string(spec.op()) + " on " + plan->Describe() + changed;
}

/// Runs a recorded operation of this Spec and compares.
template <class Spec>
bool RunNode(const Node& node, const std::function<void()>& run) {
  const Spec& spec = *node.SpecAs<Spec>();
  if (!IsEnabledFor(spec.op(), *node.plan)) return false;
  SetCurrentLayer(node.layer);
  const auto written = std::find_if(node.outputs.begin(), node.outputs.end(),
                                    [](const Tensor& t) { return !t.empty(); });
  RunChecked(spec, written->device(), node.plan, node.inputs, node.outputs, node.scalars, run);
  return true;
}

/// Makes OPCHECK compare recorded operations of this Spec, and replay saved ones.
template <class Spec>
void RegisterSpec() {
  static_assert(ChecksCalls<Spec>, "a Spec needs its own CheckCall: call_check.h");
  AddFamily(typeid(Spec).name(), {Replay<Spec>, RunNode<Spec>});
}

}  // namespace singa::opcheck
