#pragma once

// Selects the kernel that runs a Spec, and one of the kernel's candidates.

#include <string>

#include "model/dispatch/explain.h"
#include "model/dispatch/op_type.h"
#include "model/dispatch/plan_options.h"
#include "singa/core/device.h"
#include "singa/core/plan.h"

namespace singa {

/// Everything that a choice depends on, except the machine: operation, fields, settings. The text
/// is the same in every process.
std::string SignatureText(const Device& device, const OpRef& spec, const PlanOptions& options);

/// Makes the plan of one Spec, by preference:
///
/// - kFastest: the table's choice; else the first kernel that makes a plan.
/// - kAutotune: the table's choice; else the candidate that is measured to be the fastest within
///   the workspace limit, which then goes into the table. Specs that cannot be measured: as
///   kFastest.
/// - kLimitedWorkspace, kNoWorkspace: the first candidate of the first kernel that keeps the limit.
///   If all of them need workspace, kNoWorkspace takes the one that needs least.
/// - kReference: the reference kernel.
///
/// Raises Unavailable with every kernel's reason if no kernel takes the Spec. A `note` does not
/// change the plan; the kernels after the chosen one are then asked for their reasons, too.
PlanPtr SelectPlan(const Device& device, const OpRef& spec, const PlanOptions& options,
                   Selection* note = nullptr);

}  // namespace singa
