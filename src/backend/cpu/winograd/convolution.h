#pragma once

#include <string>

#include "core/layout/channel_lanes.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::winograd {

/// The reason why Winograd's method does not support this pass; empty if it does.
std::string Refuses(const ConvSpec& spec, int64_t lanes = VectorLanes());
/// Whether Winograd's method is likely to be faster than oneDNN's direct convolution.
bool Pays(const ConvSpec& spec, int64_t lanes = VectorLanes());
PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes = VectorLanes());

}  // namespace singa::cpu::winograd
