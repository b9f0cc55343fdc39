#pragma once

#include <cstddef>

#include "singa/dispatch/plan_cache.h"

namespace singa {

/// Preference and byte limit of one call; the default follows SetPreference.
struct PlanOptions {
  Preference preference = GetPreference();
  size_t workspace_limit = size_t{1} << 30;
};

}  // namespace singa
