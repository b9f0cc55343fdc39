#pragma once

#include <cstdint>

namespace singa {

/// A number that grows when plans that were chosen before should no longer be used. A Graph made
/// under another number does not replay, so its step is recorded again.
uint64_t PlanRevision();
void NextPlanRevision();

}  // namespace singa
