#pragma once

// Convolutions with one filter for each channel (group = in_channels = out_channels), in all three
// passes, on channels-last and blocked images. They read and write each image once, and compute
// little for each number that they read, so their limit is the memory.

#include <cstdint>
#include <string>

#include "backend/cpu/depthwise/loops.h"
#include "core/device/instruction_set.h"
#include "core/layout/channel_lanes.h"
#include "model/operation/conv/expand_conv_spec.h"
#include "model/operation/conv/norm_conv_spec.h"
#include "model/operation/conv/spec.h"
#include "singa/core/plan.h"

namespace singa::cpu::depthwise {

/// Channels of a vector of this CPU: 16, 8, or 0 where there are no loops for it.
int64_t BestLanes();

/// The reason why there is no plan for this pass; empty if there is one. `lanes`: of a vector.
std::string Refuses(const ConvSpec& spec, int64_t lanes = BestLanes());
PlanPtr MakePlan(const ConvSpec& spec, int64_t lanes = BestLanes());
/// The same with a batch norm in front.
std::string Refuses(const NormConvSpec& spec, int64_t lanes = BestLanes());
PlanPtr MakePlan(const NormConvSpec& spec, int64_t lanes = BestLanes());
/// The same of an image that is made where it is read (expanded.cc).
std::string Refuses(const ExpandConvSpec& spec, int64_t lanes = BestLanes());
PlanPtr MakePlan(const ExpandConvSpec& spec, int64_t lanes = BestLanes());

/// The loops of a convolution of single channels, and the layout of constant weights that they
/// read.
Loops<float> LoopsOfChannels(const ConvSpec& spec, int64_t lanes);
LayoutPtr LayoutOfFilters(const ConvSpec& spec, int64_t lanes);

}  // namespace singa::cpu::depthwise
