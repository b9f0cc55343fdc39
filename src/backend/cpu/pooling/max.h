#pragma once

// Max pooling by our own kernels on oneDNN's layouts, and forward on row-major images. oneDNN's
// kernels lose NaNs, treat -inf as the lowest float, and keep positions in a private format.

#include <string>

#include "model/dispatch/kernel.h"
#include "model/operation/pooling/spec.h"

namespace singa::cpu {

std::string RefusesMax(const PoolingForwardSpec& spec);
std::string RefusesMax(const PoolingBackwardSpec& spec);
PlanPtr MakeMax(const PoolingForwardSpec& spec);
PlanPtr MakeMax(const PoolingBackwardSpec& spec);

}  // namespace singa::cpu
