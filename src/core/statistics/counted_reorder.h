#pragma once

#include "core/statistics/reorder_hook.h"

namespace singa {

/// Calls Reorder and counts it in GetReorderStats. Adds it, with `reason`, to the list of reorders
/// if one is kept.
void CountedReorder(const DevicePtr& device, const LayoutPtr& from, const LayoutPtr& to,
                    const Shape& shape, DType dtype, const void* source, void* destination,
                    const char* reason);
/// Counts reorders that do not go through CountedReorder.
void CountReorders(uint64_t count, uint64_t bytes);
/// True if a list of reorders is kept (RecordReorders).
bool AreReordersRecorded();

}  // namespace singa
