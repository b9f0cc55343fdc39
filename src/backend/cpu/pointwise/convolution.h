#pragma once

// Forward convolutions with 1 x 1 filters and constant weights (inference): products of pixels and
// filters whose sums get bias, addition and activation in registers. Filters lie in blocks
// (OIhw16i16o), which a recorded step makes once.

#include <string>

#include "backend/cpu/linalg/pair_product.h"
#include "backend/cpu/pointwise/loops.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::pointwise {

/// The loops of this CPU.
Loops BestLoops();

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
