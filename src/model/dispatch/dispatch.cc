#include "model/dispatch/dispatch.h"

#include <utility>

#include "model/dispatch/checked_run.h"
#include "model/dispatch/explain.h"
#include "model/dispatch/measure.h"
#include "model/dispatch/opcheck/opcheck.h"
#include "model/dispatch/plan_cache.h"
#include "model/dispatch/select.h"
#include "model/dispatch/spot/spot_check.h"
#include "singa/core/stats.h"
#include "singa/core/threads.h"

namespace singa {

OpSignature SignatureOf(const Device& device, const OpRef& spec, const PlanOptions& options) {
  OpSignature signature(spec.op());
  signature.Add("device",
                static_cast<uint64_t>(device.kind()) << 32 | static_cast<uint32_t>(device.id()));
  signature.Add("preference, precision, strictness and threads",
                static_cast<uint64_t>(options.preference) << 34 |
                    static_cast<uint64_t>(GetFloat32Precision()) << 33 |
                    static_cast<uint64_t>(IsStrict()) << 32 | static_cast<uint32_t>(NumThreads()));
  if (device.kind() == DeviceKind::kCuda)
    signature.Add("determinism", static_cast<uint64_t>(IsDeterministic()));
  signature.Add("workspace limit", options.workspace_limit);
  spec.op_type().sign(spec.spec, signature);
  return signature;
}

PlanPtr FindPlan(const Device& device, const OpRef& spec, const PlanOptions& options) {
  const OpSignature signature = SignatureOf(device, spec, options);
  SetCurrentOp(signature.op());
  struct Context {
    const Device& device;
    const OpRef& spec;
    const PlanOptions& options;
  } context{device, spec, options};
  const PlanPtr plan = FindOrMakePlan(
      signature,
      [](const void* opaque) {
        const auto& c = *static_cast<const Context*>(opaque);
        PlanPtr made = SelectPlan(c.device, c.spec, c.options);
        // What was measured is now the choice of kFastest too.
        if (c.options.preference == Preference::kAutotune)
          DropPlan(
              SignatureOf(c.device, c.spec, {Preference::kFastest, c.options.workspace_limit}));
        return made;
      },
      &context);
  if (IsExplaining()) [[unlikely]]
    if (NeedsExplanation(plan)) {
      Selection selection;
      SelectPlan(device, spec, options, &selection);
      if (const auto visit = spec.op_type().visit_arguments) {
        MeasuredArguments arguments;
        visit(spec.spec, arguments);
        for (const MeasuredTensor& t : arguments.call.inputs)
          selection.input_names.emplace_back(t.name);
        for (const MeasuredTensor& t : arguments.call.outputs)
          selection.output_names.emplace_back(t.name);
      }
      Explain(plan, std::move(selection));
    }
  return plan;
}

void Run(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
         std::span<const Tensor> inputs, std::span<const Tensor> outputs, const Scalars& scalars) {
  const char* op = spec.op();
  if (opcheck::IsEnabledFor(op, *plan)) [[unlikely]] {
    opcheck::RunChecked(spec, device, plan, inputs, outputs, scalars,
                        [&] { device->Exec(op, plan, inputs, outputs, scalars); });
  } else if (plan->watch().on.load(std::memory_order_relaxed) && spot::IsDue(spec, *plan))
      [[unlikely]] {
    spot::RunChecked(spec, device, plan, inputs, outputs, scalars,
                     [&] { device->Exec(op, plan, inputs, outputs, scalars, spec); });
  } else {
    device->Exec(op, plan, inputs, outputs, scalars, spec);
  }
}

}  // namespace singa
