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

/// How exactly float32 factors of convolutions and matrix products are multiplied.
enum class Float32Precision : int {
  kHighest = 0,  ///< with the error bound of float32 arithmetic
  kHigh = 1,     ///< rounded: to 16 bits on CPUs with AMX, to TF32's 11 on GPUs; else as kHighest
};

/// Sets the precision. kHigh is several times as fast. Strict mode overrides it. kHighest by
/// default. Environment: SINGA_FLOAT32_PRECISION. Raises std::invalid_argument for a number that is
/// none.
SINGA_API void SetFloat32Precision(Float32Precision precision);
/// The precision that was set.
SINGA_API Float32Precision GetFloat32Precision();
/// "highest" or "high".
SINGA_API const char* Float32PrecisionName(Float32Precision precision);
/// Whether float32 factors may be rounded now: the precision is kHigh, and strict mode is off.
SINGA_API bool RoundsFloat32Factors();

/// SetFloat32Precision(kHigh) or (kHighest).
SINGA_API void SetTf32(bool tf32);
/// Whether the precision is kHigh.
SINGA_API bool IsTf32();

/// On CUDA devices excludes candidates whose order of summation varies from run to run. On by
/// default. Environment: SINGA_DETERMINISTIC=0.
SINGA_API void SetDeterministic(bool deterministic);
/// Whether only deterministic candidates are chosen.
SINGA_API bool IsDeterministic();

}  // namespace singa
