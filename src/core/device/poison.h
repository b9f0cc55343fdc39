#pragma once

#include <span>

#include "singa/core/plan.h"

namespace singa {

/// Whether SINGA_POISON is set.
bool IsPoisoning();
/// Fills the workspace of an execution on the CPU, and the results that are new memory, with NaN: a
/// kernel that reads what it has not written, or leaves a result out, then gives NaN. `workspace`
/// is that of the execution.
void Poison(const Execution& execution, size_t workspace_bytes);

/// The same for one tensor, if it is not strided.
void FillWithNaN(const Tensor& t);

}  // namespace singa
