#pragma once

#include <cstdint>

#include "model/operation/attention/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::attention {

/// Plans for float32 and bfloat16, with vectors of 8 or 16 floats, on any CPU.
PlanPtr MakePlan(const AttentionForwardSpec& spec, int64_t lanes);
/// For up to this many queries of a head of keys it is faster.
inline constexpr int64_t kFewQueries = 4;
PlanPtr MakeFewQueriesPlan(const AttentionForwardSpec& spec);
PlanPtr MakePlan(const AttentionBackwardSpec& spec, int64_t lanes);
/// For up to this many queries and keys of a head it is faster.
inline constexpr int64_t kWindow = 64;
PlanPtr MakeWindowPlan(const AttentionForwardSpec& spec, int64_t lanes);
PlanPtr MakeWindowPlan(const AttentionBackwardSpec& spec, int64_t lanes);

}  // namespace singa::cpu::attention
