#pragma once

#include <cstddef>

#include "singa/dispatch/plan_cache.h"

namespace singa {

/// Preference and byte limit of one call; the default follows SetPreference.
struct PlanOptions {
  Preference preference = GetPreference();
  size_t workspace_limit = size_t{1} << 30;

  /// The same where nothing is measured now. What was measured before is kFastest's choice, too.
  PlanOptions Unmeasured() const {
    return {preference == Preference::kAutotune ? Preference::kFastest : preference,
            workspace_limit};
  }
};

}  // namespace singa
