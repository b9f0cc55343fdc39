#pragma once

#include <functional>

#include "model/operation/op_signature.h"
#include "singa/core/plan.h"
#include "singa/core/plan_cache.h"

namespace singa {

/// The plan for `signature`, made by `make(context)` when it is not there. Concurrent misses of one
/// signature build it once. A hit allocates nothing.
PlanPtr FindOrMakePlan(const OpSignature& signature, PlanPtr (*make)(const void* context),
                       const void* context);

/// Drops one plan, or all, without touching the statistics: another one may be chosen now.
void DropPlan(const OpSignature& signature);
void DropPlans();

}  // namespace singa
