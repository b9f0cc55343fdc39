#include "model/dispatch/checked_run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device/poison.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/kernel.h"
#include "model/dispatch/opcheck/difference.h"
#include "model/dispatch/opcheck/opcheck.h"
#include "model/dispatch/opcheck/replay_file.h"
#include "singa/core/error.h"
#include "singa/core/stats.h"

namespace singa::opcheck {
namespace {

/// Where `reference` runs: the device itself where that is a CPU, else the default one.
DevicePtr HostOf(const DevicePtr& device) {
  return device->kind() == DeviceKind::kCpu ? device : DefaultDevice();
}
/// A copy on the host. `reference` reads it in any layout.
Tensor HostCopy(const Tensor& t) {
  if (t.empty()) return t;
  return t.device()->kind() == DeviceKind::kCpu ? t.Clone() : t.ToDevice(DefaultDevice());
}

/// Whether both are the same view of one block.
bool IsSame(const Tensor& a, const Tensor& b) {
  return !a.empty() && a.block() == b.block() && a.offset() == b.offset() &&
         a.shape() == b.shape() && a.strides() == b.strides() && a.data_type() == b.data_type();
}

/// The reference's results for a call, on the host, where `inputs` are.
std::vector<Tensor> RunReference(const OpRef& of, const DevicePtr& device,
                                 std::vector<Tensor> inputs, const Call& call) {
  const std::vector<Tensor>& outputs = call.outputs;
  const OpType& type = of.op_type();
  const std::shared_ptr<void> copy = type.copy(of.spec);
  type.make_plain(copy.get());
  if (type.make_reference) type.make_reference(copy.get());
  if (type.reference_inputs) type.reference_inputs(copy.get(), &inputs);
  const OpRef spec(copy.get(), type);
  const Kernel* kernel = FindKernel(KernelsOf(type.name(), DeviceKind::kCpu), kReference);
  const PlanPtr plan = kernel ? kernel->Make(spec).plan() : nullptr;
  if (!plan) return {};
  std::vector<Tensor> results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) {
      results.emplace_back();
    } else if (call.aliases[i] >= 0) {
      results.push_back(inputs[static_cast<size_t>(call.aliases[i])]);
    } else if (const size_t bytes = plan->private_bytes(i)) {
      results.emplace_back(Shape{static_cast<int64_t>(bytes)}, device, kUChar);
    } else {
      results.emplace_back(outputs[i].shape(), device, outputs[i].data_type());
    }
  }
  device->Exec(spec.op(), plan, inputs, results, call.scalars);
  return results;
}

/// Raises std::invalid_argument where the call does not fit the Spec.
CallChecker CheckCall(const char* op, const OpRef& spec, const Call& call) {
  CallChecker checker(op, call);
  spec.op_type().check_call(spec.spec, checker);
  checker.Done();
  return checker;
}

/// Plain copies on the host.
std::vector<Tensor> OnHost(std::span<const Tensor> outputs) {
  std::vector<Tensor> host;
  for (const Tensor& t : outputs)
    host.push_back(t.empty() ? t : t.Plain().ToDevice(HostOf(t.device())));
  return host;
}

/// What `reference` computes for a call on the host.
Expected Expect(const OpRef& spec, const DevicePtr& host, const Call& call,
                const CallChecker& checked) {
  // The reference may write to its inputs.
  const auto copies = [&](const auto& copy) {
    std::vector<Tensor> result;
    for (const Tensor& input : call.inputs) result.push_back(input.empty() ? input : copy(input));
    return result;
  };
  // What is saved cannot be compared.
  const auto run = [&](const OpRef& run_spec, std::vector<Tensor> inputs) {
    std::vector<Tensor> results = RunReference(run_spec, host, std::move(inputs), call);
    for (size_t i = 0; i < results.size(); ++i)
      if (checked.is_saved(i)) results[i] = Tensor();
    return results;
  };
  Expected expected;
  expected.results = run(spec, copies([](const Tensor& t) { return t.Clone(); }));
  expected.names = checked.OutputNames();
  if (expected.results.empty()) return expected;
  const OpType& type = spec.op_type();
  if (type.linear) {
    const std::shared_ptr<void> magnitude = type.copy(spec.spec);
    if (type.make_magnitude) type.make_magnitude(magnitude.get());
    expected.bound = run(OpRef(magnitude.get(), type), copies(AbsoluteValue));
    for (Tensor& t : expected.bound)
      if (!t.empty() && IsInteger(t.data_type())) t = Tensor();  // integers are exact
  } else if (type.magnitudes) {
    expected.bound = type.magnitudes(spec.spec, call.inputs, call.scalars);
  }
  if (type.sum_length) expected.sum_length = type.sum_length(spec.spec);
  return expected;
}

/// Arguments of a call, in the places that a plan wants.
struct Arguments {
  std::vector<Tensor> inputs, outputs;
  std::string changed = {};  ///< what lies otherwise than in the call
};
Arguments ArgumentsFor(const OpRef& spec, const Plan& plan, const Call& call,
                       const CallChecker& checked, const DevicePtr& device) {
  std::vector<LayoutPtr> wanted;
  bool as_they_lie = false;
  if (const OpType& type = spec.op_type(); type.input_layouts) {
    std::vector<Tensor> there;  // its plans are those of the device
    for (const Tensor& t : call.inputs) there.push_back(Placed(t, {}, device));
    if (auto layouts = type.input_layouts(spec.spec, plan, there)) {
      wanted = std::move(*layouts);
      as_they_lie = true;
    }
  }
  for (size_t i = wanted.size(); i < call.inputs.size(); ++i)
    wanted.push_back(plan.input_layout(i));
  Arguments arguments;
  const std::vector<std::string> inputs = checked.InputNames(), outputs = checked.OutputNames();
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    Placement place = call.input_places[i];
    if (!checked.keeps_places() &&
        (as_they_lie || wanted[i] || place.layout || !place.unmade.empty())) {
      arguments.changed += ChangedPlace(inputs[i], place, wanted[i]);
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
        arguments.changed += ChangedPlace(outputs[i], place, plan.output_layout(i));
        place = {.layout = plan.output_layout(i)};
      }
      const auto bytes = static_cast<int64_t>(plan.private_bytes(i));
      Check(checked.is_private(i) ? t.size() == bytes : bytes == 0, "replay", outputs[i], " ", t,
            " is not what ", plan.Describe(), " writes");
      arguments.outputs.push_back(Placed(t, place, device));
    }
  }
  return arguments;
}

/// Fills the outputs that are new memory, and the memory that is likely to become the workspace,
/// with NaN: a kernel that reads what it has not written then gives NaN.
void Poison(const Plan& plan, const Call& call, std::span<const Tensor> outputs) {
  DevicePtr device;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].empty()) continue;
    device = outputs[i].device();
    if (call.aliases[i] < 0) FillWithNaN(outputs[i]);
  }
  const auto bytes = static_cast<int64_t>(plan.workspace_bytes());
  if (device && bytes > 0) FillWithNaN(Tensor({bytes}, device, kUChar));
}

/// The call with copies of its arguments.
Call OwnMemory(Call call) {
  for (auto* tensors : {&call.inputs, &call.outputs})
    for (Tensor& t : *tensors)
      if (!t.empty()) t = t.Clone();
  return call;
}

/// Whether the outputs that are in a form private to a plan have the form of this one.
bool WritesSameForms(const Plan& plan, const Call& call, const CallChecker& checked) {
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const auto bytes = static_cast<int64_t>(plan.private_bytes(i));
    if (checked.is_private(i) ? call.outputs[i].size() != bytes : bytes != 0) return false;
  }
  return true;
}

/// Compares every candidate of every kernel that takes the call.
void RunEveryKernel(const OpRef& spec, const DevicePtr& device, const Call& call,
                    const CallChecker& checked, const Expected& expected) {
  for (const Kernel& kernel : KernelsOf(spec.op_type().name(), device->kind())) {
    if (std::string_view(kernel.implementation) == kReference) continue;
    for (const Candidate& candidate : kernel.AllCandidates(spec)) {
      const PlanPtr plan = candidate.make();
      if (!WritesSameForms(*plan, call, checked)) continue;
      const Arguments arguments = ArgumentsFor(spec, *plan, OwnMemory(call), checked, device);
      Poison(*plan, call, arguments.outputs);
      device->Exec(spec.op(), plan, arguments.inputs, arguments.outputs, call.scalars);
      const std::vector<Tensor> results = OnHost(arguments.outputs);
      CountKernel(call, candidate,
                  FindDifference(results, expected, plan->spreads_error(), plan->factor_error()));
    }
  }
}

/// The plan of a saved call. Where this build does not make it, another plan of the same
/// implementation.
PlanPtr FindPlanOf(const OpRef& spec, const Call& call) {
  const Kernel* kernel =
      FindKernel(KernelsOf(spec.op_type().name(), call.device), call.implementation);
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

}  // namespace

Call CallOf(const OpRef& spec, const DevicePtr& device, const Plan& plan,
            std::span<const Tensor> before, std::span<const Tensor> inputs,
            std::span<const Tensor> outputs, const Scalars& scalars) {
  Call call;
  call.op = spec.op();
  call.family = spec.op_type().name();
  call.implementation = plan.implementation();
  call.description = plan.Describe();
  call.layer = CurrentLayer();
  call.device = device->kind();
  call.scalars = scalars;
  FieldWriter writer(&call.fields, LayoutText);
  spec.op_type().write(spec.spec, writer);
  for (size_t i = 0; i < inputs.size(); ++i) {
    call.inputs.push_back(HostCopy(before[i]));
    call.input_places.push_back(Placement::Of(inputs[i]));
  }
  for (const Tensor& output : outputs) {
    call.outputs.push_back(output);
    call.output_places.push_back(Placement::Of(output));
    int alias = -1;
    for (size_t j = 0; j < inputs.size(); ++j)
      if (IsSame(inputs[j], output)) alias = static_cast<int>(j);
    call.aliases.push_back(alias);
  }
  if (spec.op_type().check_call) call.input_names = CheckCall(spec.op(), spec, call).InputNames();
  return call;
}

std::vector<Tensor> ReferenceResults(const OpRef& spec, const DevicePtr& device, const Call& call) {
  std::vector<Tensor> results = RunReference(spec, HostOf(device), call.inputs, call);
  if (results.empty() || !spec.op_type().check_call) return results;
  const CallChecker checked = CheckCall(spec.op(), spec, call);
  for (size_t i = 0; i < results.size(); ++i)
    if (checked.is_private(i)) results[i] = Tensor();
  return results;
}

std::vector<Tensor> ResultsOf(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                              const Call& call, std::span<const Tensor> inputs) {
  Arguments arguments;
  if (spec.op_type().check_call) {
    const CallChecker checked = CheckCall(spec.op(), spec, call);
    if (!WritesSameForms(*plan, call, checked)) return {};
    arguments = ArgumentsFor(spec, *plan, OwnMemory(call), checked, device);
  } else {  // arguments lie as the Spec says
    arguments.inputs.assign(inputs.begin(), inputs.end());
    for (const Tensor& t : call.outputs)
      arguments.outputs.push_back(t.layout() ? Tensor(device, t.layout())
                                             : Tensor(t.shape(), device, t.data_type()));
  }
  device->Exec(spec.op(), plan, arguments.inputs, arguments.outputs, call.scalars);
  return arguments.outputs;
}

void RunChecked(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Scalars& scalars, const std::function<void()>& execute) {
  std::optional<Pause> pause(std::in_place);
  const Call call = CallOf(spec, device, *plan, inputs, inputs, outputs, scalars);
  const CallChecker checker = CheckCall(spec.op(), spec, call);
  pause.reset();
  execute();
  pause.emplace();

  const Expected expected = Expect(spec, HostOf(device), call, checker);
  if (expected.results.empty()) return CountUncompared(call.op);
  const std::vector<Tensor> chosen = OnHost(outputs);
  if (ChecksEveryKernel()) RunEveryKernel(spec, device, call, checker, expected);
  Report(call, chosen,
         FindDifference(chosen, expected, plan->spreads_error(), plan->factor_error()));
}

std::string Replay(const OpType& type, const Call& call) {
  const std::shared_ptr<void> made = type.make();
  FieldReader reader(call.fields);
  type.read(made.get(), reader);
  reader.Done();
  const OpRef spec(made.get(), type);
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

bool RunNode(const Node& node, const std::function<void()>& run) {
  const OpType* type = node.spec_type ? FindOpType(node.spec_type->id->name()) : nullptr;
  if (!type) return false;
  if (type->run_node) return type->run_node(node, run);
  const OpRef spec(node.spec.get(), *type);
  if (!IsEnabledFor(spec.op(), *node.plan)) return false;
  SetCurrentLayer(node.layer);
  const auto written = std::find_if(node.outputs.begin(), node.outputs.end(),
                                    [](const Tensor& t) { return !t.empty(); });
  RunChecked(spec, written->device(), node.plan, node.inputs, node.outputs, node.scalars, run);
  return true;
}

}  // namespace singa::opcheck
