#pragma once

// Forward convolutions with 1 x 1 filters and constant weights (inference): products of pixels and
// filters whose sums get bias, addition and activation in registers. Filters lie in blocks
// (OIhw16i16o), which a recorded step makes once.

#include <cstdint>
#include <optional>
#include <string>

#include "backend/cpu/linalg/pair_product.h"
#include "backend/cpu/pointwise/loops.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::pointwise {

/// The loops with vectors of so many lanes, and the best ones of this CPU; none where there are
/// none.
Loops LoopsOf(int64_t lanes);
Loops BestLoops();

/// The tag of x, if loops with vectors of so many lanes read its layout. Images of one pixel are
/// row-major in channels-last.
std::optional<LaneTag> TagOfX(const ConvSpec& spec, int64_t lanes);
/// The tag of y, where x has this one.
LaneTag TagOfY(const ConvSpec& spec, LaneTag x, int64_t lanes);
/// The layout in which loops read the filters.
LayoutPtr FilterLayout(const ConvSpec& spec, int64_t lanes);

/// The reason why there is no plan for this call; empty if there is one.
std::string Refuses(const ConvSpec& spec, const Loops& loops);
PlanPtr MakePlan(const ConvSpec& spec, const Loops& loops);
/// Whether loops of so many lanes are likely to be faster than oneDNN's convolution. They are
/// slower, but know which filters they read next, and fetch them from memory ahead.
bool Pays(const ConvSpec& spec, int64_t lanes);

/// Refuses and MakePlan for the gradient of bfloat16 filters (weight_gradient.cc).
std::string RefusesWeightGradient(const ConvSpec& spec);
PlanPtr MakeWeightGradient(const ConvSpec& spec, const PairLoops& loops);

}  // namespace singa::cpu::pointwise
