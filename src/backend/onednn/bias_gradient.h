#pragma once

// The gradient of a convolution's bias alone: the sum of dy over images and pixels, in the layouts
// that oneDNN's kernels leave dy in. oneDNN itself has it along with dW only.

#include <string>

#include "backend/onednn/channel_lanes.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa::onednn {

/// Empty when willing, else why not.
std::string RefusesBiasGradient(const LayoutPtr& dy_layout, const Shape& dy, DType dtype);
PlanPtr MakeBiasGradient(const LayoutPtr& dy_layout, const Shape& dy, DType dtype);
/// For a dy that lies as `tag` says.
PlanPtr MakeBiasGradient(LaneTag tag, const Shape& dy, DType dtype);

}  // namespace singa::onednn
