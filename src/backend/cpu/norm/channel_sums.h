#pragma once

// Sums for each channel, over images and pixels, in the layouts of oneDNN's kernels: reductions,
// and the bias gradient of a convolution, which oneDNN computes only together with dW.

#include "core/layout/channel_lanes.h"
#include "singa/core/dtype.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa::cpu {

/// For images with layout `tag`.
PlanPtr MakeChannelSums(LaneTag tag, const Shape& images, DType dtype);

}  // namespace singa::cpu
