#include "core/reorder_hook.h"
#include "core/workspace.h"
#include "model/operation/dispatch.h"
#include "model/operation/reorder_spec.h"

namespace singa {
namespace {

void ReorderByPlan(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                   const Shape& shape, DType dtype, const void* src, void* dst) {
  // Moves bits, so there is nothing to prefer or to check.
  const PlanPtr plan =
      FindPlan(*device, ReorderSpec{from, to, shape, dtype}, {Preference::kFastest, SIZE_MAX});
  const Workspace workspace(*device, plan->workspace_bytes());
  static_cast<const ReorderPlan&>(*plan).Move(*device, src, dst, workspace.data());
}

}  // namespace

void UseReorderPlans() { SetReorderHook(ReorderByPlan); }

}  // namespace singa
