#pragma once

#include <cstddef>
#include <span>

#include "singa/core/plan.h"
#include "singa/core/stats.h"
#include "singa/core/tensor.h"

namespace singa {

/// Milliseconds on a clock that only goes on.
double ProfileClock();
/// Records what began at `start` and ends now.
void RecordProfile(const char* op, const std::string& implementation, const std::string& shapes,
                   double start, size_t workspace);
/// The same of a plan and what it ran on.
void RecordProfile(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs, double start);
/// "(2, 3) (3, 4) -> (2, 4)"
std::string ShapesOf(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

}  // namespace singa
