#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "singa/core/plan.h"
#include "singa/core/stats.h"
#include "singa/core/tensor.h"

namespace singa {

/// Milliseconds of a steady clock.
double ProfileClock();
/// Records work that is no plan, such as a reorder, which began at `start` and ends now.
void RecordProfile(const std::string& op, const std::string& implementation,
                   const std::string& shapes, uint64_t bytes, double start);
/// Records the execution of a plan that began at `start` and ends now.
void RecordProfile(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs, int64_t multiply_adds, double start);
/// "(2, 3) (3, 4) -> (2, 4)"
std::string ShapesOf(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

}  // namespace singa
