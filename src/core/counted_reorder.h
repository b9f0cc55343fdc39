#pragma once

#include "core/reorder_hook.h"

namespace singa {

/// Reorder, counted in GetReorderStats and kept in the report with `reason`.
void CountedReorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                    const Shape& shape, DType dtype, const void* source, void* destination,
                    const char* reason);
/// Counts reorders that are done without it.
void CountReorders(uint64_t count, uint64_t bytes);
/// Whether a list of reorders is kept (RecordReorders).
bool AreReordersRecorded();

}  // namespace singa
