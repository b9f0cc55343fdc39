#pragma once

// Average pooling on channels-last and blocked images. It covers what oneDNN does not support or
// does worse: windows of different sizes, and overlapping bfloat16 windows, whose gradients oneDNN
// accumulates in bfloat16.

#include <string>

#include "model/dispatch/kernel.h"
#include "model/operation/pooling/spec.h"

namespace singa::cpu {

std::string RefusesAverage(const PoolingForwardSpec& spec);
std::string RefusesAverage(const PoolingBackwardSpec& spec);
PlanPtr MakeAverage(const PoolingForwardSpec& spec);
PlanPtr MakeAverage(const PoolingBackwardSpec& spec);

}  // namespace singa::cpu
