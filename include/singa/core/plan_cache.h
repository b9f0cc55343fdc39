#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

struct PlanCacheOpStats {
  std::string op;
  uint64_t hits = 0;
  uint64_t misses = 0;
};

struct PlanCacheStats {
  uint64_t hits = 0;
  uint64_t misses = 0;
  uint64_t evictions = 0;
  uint64_t entries = 0;
  uint64_t bytes = 0;
  uint64_t max_entries = 0;
  uint64_t max_bytes = 0;
  std::vector<PlanCacheOpStats> by_op;
};

/// The one cache of plans of this process: least recently used out first, bounded in bytes and
/// entries.
SINGA_API PlanCacheStats GetPlanCacheStats();
/// Zero keeps the present limit. Evicts at once what is over it.
SINGA_API void SetPlanCacheLimit(uint64_t bytes, uint64_t entries);
SINGA_API void ClearPlanCache();
/// Off: every call makes its plan anew (for comparison; results are bit-equal). Environment:
/// SINGA_PLAN_CACHE=0.
SINGA_API void EnablePlanCache(bool enable);
SINGA_API bool PlanCacheEnabled();

/// What a selection may cost.
enum class Preference : int {
  kFastest = 0,           ///< a good static choice
  kLimitedWorkspace = 1,  ///< the fastest whose workspace is within the limit
  kNoWorkspace = 2,       ///< the fastest that needs no workspace
  kAutotune = 3,          ///< measures once and remembers
  kReference = 4,         ///< the plain implementation
};

/// Default of every operation that is not given a preference. Environment: SINGA_PREFER.
SINGA_API void SetPreference(Preference preference);
SINGA_API Preference GetPreference();
/// From its name in lower case ("limited_workspace"); raises std::invalid_argument for others.
SINGA_API Preference ParsePreference(const std::string& name);
SINGA_API const char* PreferenceName(Preference preference);

/// Strict: only methods whose rounding error has the bound of plain sums of products, which leaves
/// out Winograd's convolution. Off by default; environment: SINGA_STRICT=1.
SINGA_API void SetStrict(bool strict);
SINGA_API bool IsStrict();

// On CUDA devices only.
/// TF32: float32 convolutions and matrix products may round their factors to TF32's 10 bits, which
/// is several times as fast. Off by default; environment: SINGA_TF32=1. Strict mode leaves it out.
SINGA_API void SetTf32(bool tf32);
SINGA_API bool IsTf32();
/// Deterministic: no method whose sums come together in another order each time. On by default;
/// environment: SINGA_DETERMINISTIC=0.
SINGA_API void SetDeterministic(bool deterministic);
SINGA_API bool IsDeterministic();

}  // namespace singa
