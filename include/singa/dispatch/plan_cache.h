#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// Look-ups of the plans of one operation.
struct PlanCacheOpStats {
  std::string op;
  uint64_t hits = 0;
  uint64_t misses = 0;
};

/// Counts since the process started, and the limits.
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

/// Statistics of the plan cache. There is one per process. It is limited in bytes and entries, and
/// evicts the least recently used plan first.
SINGA_API PlanCacheStats GetPlanCacheStats();
/// Sets the limits and evicts what exceeds them. Zero leaves a limit unchanged.
SINGA_API void SetPlanCacheLimit(uint64_t bytes, uint64_t entries);
/// Removes all plans. Those in use are freed later.
SINGA_API void ClearPlanCache();
/// Counts plans that have left the cache, or were not kept in it. While the number stays the same,
/// equal calls have the same plan.
SINGA_API uint64_t CountForgottenPlans();
/// If false, each call makes a new plan, for comparison; results are bit-identical. Environment:
/// SINGA_PLAN_CACHE=0.
SINGA_API void EnablePlanCache(bool enable);
/// Whether plans are kept.
SINGA_API bool PlanCacheEnabled();

/// How an implementation is selected.
enum class Preference : int {
  kFastest = 0,           ///< the one that is expected to be fastest, without measuring
  kLimitedWorkspace = 1,  ///< likewise, among those whose workspace is within the limit
  kNoWorkspace = 2,       ///< likewise, among those without workspace; else the least workspace
  kAutotune = 3,          ///< the fastest one, measured once per signature
  kReference = 4,         ///< `reference`
};

/// The preference of operations that are not given one. Environment: SINGA_PREFER.
SINGA_API void SetPreference(Preference preference);
/// The preference in force.
SINGA_API Preference GetPreference();
/// The preference with a lower-case name, such as "limited_workspace". Raises std::invalid_argument
/// for other names.
SINGA_API Preference ParsePreference(const std::string& name);
/// The lower-case name of a preference, as ParsePreference reads it.
SINGA_API const char* PreferenceName(Preference preference);

/// Strict mode excludes candidates whose rounding error exceeds the bound of plain sums of
/// products, such as Winograd convolution. Off by default. Environment: SINGA_STRICT=1.
SINGA_API void SetStrict(bool strict);
/// Whether strict mode is on.
SINGA_API bool IsStrict();

// CUDA devices only.
/// Lets float32 convolutions and matrix products round their factors to TF32 (10 mantissa bits),
/// which is several times as fast. Strict mode overrides it. Off by default. Environment:
/// SINGA_TF32=1.
SINGA_API void SetTf32(bool tf32);
/// Whether TF32 is allowed.
SINGA_API bool IsTf32();
/// Excludes candidates whose order of summation varies from run to run. On by default. Environment:
/// SINGA_DETERMINISTIC=0.
SINGA_API void SetDeterministic(bool deterministic);
/// Whether only deterministic candidates are chosen.
SINGA_API bool IsDeterministic();

}  // namespace singa
