#pragma once

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Moves the elements of one dense tensor from layout `from` to layout `to` (null: row-major).
/// `src` and `dst` are the starts of the two memories and do not overlap.
using ReorderFn = void (*)(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                           const Shape& shape, DType dtype, const void* src, void* dst);

/// Where the operation layer leaves its reorder, which goes through the plan cache and knows the
/// direct way between two layouts; the core knows no operation, so it cannot call it by name.
void SetReorderHook(ReorderFn hook);

/// Reorders by the hook, or through row-major memory with OpaqueLayout::Unpack and Pack where there
/// is none. Counts nothing.
void Reorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
             const Shape& shape, DType dtype, const void* src, void* dst);

}  // namespace singa
