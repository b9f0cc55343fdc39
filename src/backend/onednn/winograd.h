#pragma once

#include <string>

#include "backend/onednn/channel_lanes.h"
#include "model/operation/conv_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn::winograd {

/// Why Winograd's method cannot be taken for this pass; empty when it can.
std::string Refuses(const ConvSpec& spec, int64_t lanes = VectorLanes());
/// Whether it is likely to be faster than oneDNN's direct convolution.
bool Pays(const ConvSpec& spec, int64_t lanes = VectorLanes());
PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes = VectorLanes());

}  // namespace singa::onednn::winograd
