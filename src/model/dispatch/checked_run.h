#pragma once

// Runs an operation on its chosen implementation and on `reference`, and compares.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/dispatch/call_check.h"
#include "model/dispatch/op_type.h"
#include "singa/core/device.h"
#include "singa/core/node.h"
#include "singa/core/plan.h"

namespace singa::opcheck {

/// Runs `plan` by `execute`, then compares. The program gets the results of `plan`, bit for bit.
void RunChecked(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                const Scalars& scalars, const std::function<void()>& execute);

/// What is kept of a call. `before` are its inputs before it ran, `inputs` where they lay.
Call CallOf(const OpRef& spec, const DevicePtr& device, const Plan& plan,
            std::span<const Tensor> before, std::span<const Tensor> inputs,
            std::span<const Tensor> outputs, const Scalars& scalars);
/// What `reference` computes for a call, on the host; none where it does not take the call. What
/// another implementation saves for itself is empty.
std::vector<Tensor> ReferenceResults(const OpRef& spec, const DevicePtr& device, const Call& call);
/// What another plan computes for a call, in new memory; none where it saves another form for
/// backward. `inputs` are the call's where they lay.
std::vector<Tensor> ResultsOf(const OpRef& spec, const DevicePtr& device, const PlanPtr& plan,
                              const Call& call, std::span<const Tensor> inputs);

/// Runs a saved call again, and compares. Returns a description of the call.
std::string Replay(const OpType& type, const Call& call);

/// Runs a recorded operation by `run`, and compares. Returns false, and does nothing, where OPCHECK
/// is off for the operation.
bool RunNode(const Node& node, const std::function<void()>& run);

}  // namespace singa::opcheck
