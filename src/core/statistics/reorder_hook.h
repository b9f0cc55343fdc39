#pragma once

#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// Copies the elements of a dense tensor from layout `from` to layout `to` (null: row-major). `src`
/// and `dst` must not overlap.
using ReorderFn = void (*)(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                           const Shape& shape, DType dtype, const void* src, void* dst);

/// Installs the operation layer's reorder, which uses the plan cache and converts directly between
/// two layouts. It is a hook because the core must not depend on operations.
void SetReorderHook(ReorderFn hook);

/// Calls the hook; without one, converts with OpaqueLayout::Unpack and Pack through row-major
/// memory. Does not count the reorder.
void Reorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
             const Shape& shape, DType dtype, const void* src, void* dst);

}  // namespace singa
