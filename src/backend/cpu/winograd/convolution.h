#pragma once

#include <string>

#include "backend/cpu/batch_blocked/product.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::winograd {

/// The reason why Winograd's method does not support this pass; empty if it does.
std::string Refuses(const ConvSpec& spec, int64_t lanes = VectorLanes());
/// Whether Winograd's method is likely to be faster than oneDNN's direct convolution.
bool Pays(const ConvSpec& spec, int64_t lanes = VectorLanes());
PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes = VectorLanes());
/// Whether float32 products of bfloat16 parts are likely to be faster than those of MakePlan.
bool PartsPay(const ConvSpec& spec);
/// For float32, with 16 lanes.
PlanPtr MakePartsPlan(const ConvSpec& spec, const batch_blocked::PartsUnit& unit);

}  // namespace singa::cpu::winograd
