#pragma once

#include "singa/core/plan.h"

namespace singa {

// Filling, copying and reordering as plans, so that they are executed, and recorded, like
// operations.

/// out[0] = v[0] everywhere.
const PlanPtr& FillPlan();
/// out[0] = in[0], converting the type; equal shapes. Opaque tensors have equal layouts, but for
/// the type (OpaqueLayout::WithType).
const PlanPtr& CopyPlan();
/// out[0] = in[0], each in the layout of its block; counted and reported as a reorder.
PlanPtr ReorderPlan(const char* reason);

}  // namespace singa
