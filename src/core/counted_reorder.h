#pragma once

#include "core/reorder_hook.h"

namespace singa {

/// Reorder, counted in GetReorderStats and kept in the report with `reason`.
void CountedReorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                    const Shape& shape, DType dtype, const void* source, void* destination,
                    const char* reason);

}  // namespace singa
