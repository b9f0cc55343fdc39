#pragma once

#include <cstddef>

#include "singa/core/plan_cache.h"

namespace singa {

/// Preference and byte limit of one call; the default follows SetPreference.
struct Choice {
  Preference preference = GetPreference();
  size_t workspace_limit = size_t{1} << 30;
};

}  // namespace singa
