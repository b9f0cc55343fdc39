#include "core/memory/workspace.h"
#include "core/statistics/reorder_hook.h"
#include "model/dispatch/dispatch.h"
#include "model/operation/layout/reorder_spec.h"

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
