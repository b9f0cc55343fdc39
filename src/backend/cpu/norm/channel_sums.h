#pragma once

// The bias gradient of a convolution without its weight gradient: the sum of dy over images and
// pixels, in the layouts of oneDNN's kernels. oneDNN computes it only together with dW.

#include "core/layout/channel_lanes.h"
#include "singa/core/dtype.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa::cpu {

/// For a dy with layout `tag`.
PlanPtr MakeBiasGradient(LaneTag tag, const Shape& dy, DType dtype);

}  // namespace singa::cpu
