#include "backend/cpu/attention/attention.h"

#include <type_traits>

#include "core/device/instruction_set.h"
#include "model/dispatch/kernel.h"
#include "singa/dispatch/plan_cache.h"

namespace singa::cpu::attention {
namespace {

template <class Spec>
std::string Refuses(const Spec& spec) {
  return RefusesStorage(spec.dtype);
}

/// Loops for pairs of bfloat16 numbers, where they multiply faster than those for float32: not on
/// CPUs with AMX, whose vectors multiply both at one rate. Strict mode rounds no factors.
const PairLoops* PairLoopsFor(DType dtype) {
  const bool pays = AllowedInstructionSet() == InstructionSet::kAvx512Bf16;
  return dtype == kBFloat16 && pays && !IsStrict() ? Avx512PairLoops() : nullptr;
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  if constexpr (std::is_same_v<Spec, AttentionForwardSpec>)
    if (spec.queries * spec.group() <= kFewQueries) return MakeFewQueriesPlan(spec);
  const int64_t lanes = AllowedInstructionSet() >= InstructionSet::kAvx512 ? 16 : 8;
  if (spec.queries <= kWindow && spec.keys <= kWindow) return MakeWindowPlan(spec, lanes);
  if (const PairLoops* loops = PairLoopsFor(spec.dtype)) return MakePairPlan(spec, *loops);
  return MakePlan(spec, lanes);
}

template <class Spec>
void RegisterTiles() {
  Register<Spec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses<Spec>, .make = Make<Spec>});
}

}  // namespace

SINGA_KERNELS(cpu) {
  RegisterTiles<AttentionForwardSpec>();
  RegisterTiles<AttentionBackwardSpec>();
}

}  // namespace singa::cpu::attention
