#pragma once

// Plans that spot checks have found to be wrong (singa/dispatch/spot_check.h).

#include <string>

#include "model/dispatch/op_type.h"
#include "singa/core/plan.h"

namespace singa::spot {

/// Operation and fields: "ConvForward pass=0 dtype=0 ...".
std::string CallText(const OpRef& spec);
/// Why a plan is refused for calls of this Spec; empty if it is not.
std::string ReasonAgainst(const OpRef& spec, const Plan& plan);

}  // namespace singa::spot
