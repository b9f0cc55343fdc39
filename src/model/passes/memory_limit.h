#pragma once

#include <vector>

#include "core/graph/recorded_step.h"
#include "singa/passes/passes.h"

namespace singa {

/// Drops results and computes them again (schedule.h), so that the segment keeps to `limit`, and
/// notes there what that takes. The same bits. Raises OutOfMemory if it cannot.
std::vector<Node> FitIntoLimit(const RecordedStep& step, std::vector<Node> nodes,
                               MemoryLimit& limit);

}  // namespace singa
