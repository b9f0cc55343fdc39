#pragma once

#include "singa/core/plan.h"

namespace singa {

// Fills, copies and reorders as plans, so that they are executed and recorded like operations.

/// Sets all elements of output 0 to the scalar v[0].
const PlanPtr& FillPlan();
/// Copies input 0 to output 0, which has the same shape, and converts the type. Opaque tensors have
/// equal layouts, apart from the type (OpaqueLayout::WithType).
const PlanPtr& CopyPlan();
/// Copies the memory of input 0 to output 0 as it lies. Both are whole blocks of the same size. The
/// output may take over the input's memory; then nothing moves.
const PlanPtr& MemoryCopyPlan();
/// Copies input 0 to output 0, each in the layout of its block. Counts as a reorder with `reason`.
PlanPtr ReorderPlan(const char* reason);

}  // namespace singa
