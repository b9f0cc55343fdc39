#pragma once

// Backward of average pooling on images whose channels, or blocks of them, lie side by side: a
// kernel of our own for what oneDNN's cannot do or does worse, such as overlapping windows of
// bfloat16, which it adds up in bfloat16.

#include <string>

#include "model/operation/pooling_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn {

std::string RefusesAverageGradient(const PoolingBackwardSpec& spec);
PlanPtr MakeAverageGradient(const PoolingBackwardSpec& spec);

}  // namespace singa::onednn
