#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "singa/core/export.h"

namespace singa {

/// The first runs of a plan are checked: sampled elements of its results are computed again from
/// the call's operands, by plain sums in float64. A plan whose results differ by more than OPCHECK
/// allows is refused for this call: the next implementation computes the results, a warning on
/// stderr names the plan and a file for `python -m singa replay`, and the next call of this kind
/// takes another plan. Ranks that train one model share what they refuse before the next step.
/// Which operations are sampled, and how much, is in docs/how_it_works/spot_checks.md.
///
/// On by default. Environment: SINGA_SPOT_CHECKS=0 turns it off.
SINGA_API void SetSpotChecks(bool enable);
/// Whether they are on.
SINGA_API bool SpotChecks();

/// A plan that computed wrong results.
struct RefusedPlan {
  std::string call;  ///< operation and fields of the Spec
  std::string plan;  ///< its description, such as "onednn brgconv:avx512_core_amx nhwc nhwc"
  std::string reason;
};
/// All, in the order in which they were found.
SINGA_API std::vector<RefusedPlan> GetRefusedPlans();
/// Refuses a plan that another process has found to be wrong. Nothing happens if it is refused
/// already.
SINGA_API void RefusePlan(const std::string& call, const std::string& plan,
                          const std::string& reason);
/// A number that is the same in processes that have refused the same plans.
SINGA_API uint64_t RefusedPlansHash();
/// Forgets all, for tests.
SINGA_API void ForgetRefusedPlans();

}  // namespace singa
