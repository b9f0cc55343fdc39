#pragma once

#include <functional>
#include <string>

#include "model/dispatch/op_signature.h"
#include "singa/core/plan.h"
#include "singa/dispatch/plan_cache.h"

namespace singa {

/// The plan for `signature`. On a miss `make(context)` makes it; concurrent misses of one signature
/// make it once. A hit allocates nothing.
PlanPtr FindOrMakePlan(const OpSignature& signature, PlanPtr (*make)(const void* context),
                       const void* context);

/// Drops one plan, or all plans, so that another one can be chosen. The statistics stay.
void DropPlan(const OpSignature& signature);
void DropPlans();
/// Drops the plans with this description.
void DropPlansNamed(const std::string& description);

}  // namespace singa
