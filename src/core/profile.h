#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "singa/core/plan.h"
#include "singa/core/stats.h"
#include "singa/core/tensor.h"

namespace singa {

/// Milliseconds on a clock that only goes on.
double ProfileClock();
/// Records a reorder of `bytes` that began at `start` and ends now.
void RecordProfile(const std::string& layouts, const std::string& shape, uint64_t bytes,
                   double start);
/// Records a plan and what it ran on, likewise.
void RecordProfile(const char* op, const PlanPtr& plan, std::span<const Tensor> inputs,
                   std::span<const Tensor> outputs, int64_t multiply_adds, double start);
/// "(2, 3) (3, 4) -> (2, 4)"
std::string ShapesOf(std::span<const Tensor> inputs, std::span<const Tensor> outputs);

}  // namespace singa
