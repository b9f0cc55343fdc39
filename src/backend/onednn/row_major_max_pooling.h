#pragma once

// Maximum pooling of row-major images. Rows of images are as long as they happen to be, and their
// windows overlap: lanes are taken across channels instead, as they are on oneDNN's layouts.

#include <string>

#include "model/operation/pooling_spec.h"
#include "singa/core/plan.h"

namespace singa::onednn {

/// Empty when willing, else why not.
std::string RefusesRowMajorMax(const PoolingForwardSpec& spec);
PlanPtr MakeRowMajorMax(const PoolingForwardSpec& spec);

}  // namespace singa::onednn
