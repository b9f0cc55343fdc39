#pragma once

// Spot checks: the first runs of a plan are compared with sampled elements (sampler.h). Here: which
// runs, and what becomes of a plan that is wrong.

#include <cstdint>
#include <functional>
#include <span>

#include "model/dispatch/op_type.h"
#include "singa/core/device.h"
#include "singa/core/node.h"
#include "singa/core/plan.h"
#include "singa/core/tensor.h"

namespace singa::spot {

/// Whether run number `run` of a plan is checked: run 2, and powers of 4.
bool IsTurn(uint32_t run);
/// Whether this run of a plan, which begins now, is to be checked. Counts it.
bool IsDue(const OpRef& spec, const Plan& plan);

/// Runs the plan by `execute`, and compares. Wrong results are replaced by those of the next
/// implementation that is right, in the same places. Raises std::runtime_error where there is none.
void RunChecked(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Scalars& scalars, const std::function<void()>& execute);

/// Runs a recorded operation by `run`, and compares. Returns false, and does nothing, where this
/// run is not to be checked.
bool RunNode(const Node& node, const std::function<void()>& run);

}  // namespace singa::spot
