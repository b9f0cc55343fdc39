#pragma once

// Max pooling of row-major images. It vectorises across channels, as on oneDNN's layouts, because
// rows of images have any length and their windows overlap.

#include <string>

#include "model/dispatch/kernel.h"
#include "model/operation/pooling/spec.h"

namespace singa::cpu {

std::string RefusesRowMajorMax(const PoolingForwardSpec& spec);
PlanPtr MakeRowMajorMax(const PoolingForwardSpec& spec);

}  // namespace singa::cpu
