#pragma once

// Maximum pooling by our own kernels on oneDNN's layouts, and forward on row-major images: oneDNN's
// lose NaNs, take -inf for the smallest float, and keep positions in a form of their own.

#include <string>

#include "model/operation/pooling_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn {

/// Empty when willing, else why not.
std::string RefusesMax(const PoolingForwardSpec& spec);
std::string RefusesMax(const PoolingBackwardSpec& spec);
PlanPtr MakeMax(const PoolingForwardSpec& spec);
PlanPtr MakeMax(const PoolingBackwardSpec& spec);

}  // namespace singa::onednn
