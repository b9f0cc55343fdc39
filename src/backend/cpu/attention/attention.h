#pragma once

#include <cstdint>

#include "backend/cpu/linalg/pair_product.h"
#include "model/operation/attention/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::attention {

/// Plans for float32 and bfloat16, with vectors of 8 or 16 floats, on any CPU.
PlanPtr MakePlan(const AttentionForwardSpec& spec, int64_t lanes);
PlanPtr MakePlan(const AttentionBackwardSpec& spec, int64_t lanes);
/// Plans for bfloat16, whose products are of pairs. Weights and gradients of scores are rounded.
PlanPtr MakePairPlan(const AttentionForwardSpec& spec, const PairLoops& loops);
PlanPtr MakePairPlan(const AttentionBackwardSpec& spec, const PairLoops& loops);
/// The relative error of a rounded factor.
inline constexpr double kPairError = 0x1p-8;
/// For up to this many queries of a head of keys it is faster.
inline constexpr int64_t kFewQueries = 4;
PlanPtr MakeFewQueriesPlan(const AttentionForwardSpec& spec);
/// For up to this many queries and keys of a head it is faster.
inline constexpr int64_t kWindow = 64;
PlanPtr MakeWindowPlan(const AttentionForwardSpec& spec, int64_t lanes);
PlanPtr MakeWindowPlan(const AttentionBackwardSpec& spec, int64_t lanes);

}  // namespace singa::cpu::attention
