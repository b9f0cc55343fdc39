#include "backend/cpu/attention/attention.h"

#include <type_traits>

#include "core/device/instruction_set.h"
#include "model/dispatch/kernel.h"

namespace singa::cpu::attention {
namespace {

template <class Spec>
std::string Refuses(const Spec& spec) {
  return RefusesStorage(spec.dtype);
}

template <class Spec>
PlanOrReason Make(const Spec& spec) {
  if constexpr (std::is_same_v<Spec, AttentionForwardSpec>)
    if (spec.queries * spec.group() <= kFewQueries) return MakeFewQueriesPlan(spec);
  const int64_t lanes = AllowedInstructionSet() >= InstructionSet::kAvx512 ? 16 : 8;
  if (spec.queries <= kWindow && spec.keys <= kWindow) return MakeWindowPlan(spec, lanes);
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
