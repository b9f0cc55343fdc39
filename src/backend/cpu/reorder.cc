// Reorders for which oneDNN has only reference code, and the preferred layout of images.

#include <memory>
#include <utility>

#include "core/layout/blocked_reorder.h"
#include "core/layout/channel_lanes.h"
#include "model/dispatch/field_text.h"
#include "model/dispatch/kernel.h"
#include "model/operation/layout/reorder_spec.h"
#include "model/operation/layout/spec.h"

namespace singa::cpu {
namespace {

class BlockedReorderPlan final : public ReorderPlan {
 public:
  BlockedReorderPlan(const Placement& from, const Placement& to, DType dtype)
      : ReorderPlan("cpu"), reorder_(from, to, SizeOf(dtype)) {}
  void Move(Device&, const void* src, void* dst, void*) const override { reorder_.Move(src, dst); }
  std::string Describe() const override { return "cpu blocked reorder"; }
  size_t bytes() const override { return reorder_.bytes(); }

 private:
  BlockedReorder reorder_;
};

std::string Refuses(const ReorderSpec& spec) { return RefusesBlockedReorder(spec.from, spec.to); }

PlanOrReason Make(const ReorderSpec& spec) {
  const BlockedLayout* from = AsBlocked(spec.from);
  const BlockedLayout* to = AsBlocked(spec.to);
  return std::make_shared<BlockedReorderPlan>(from ? from->placement() : to->plain(),
                                              to ? to->placement() : from->plain(), spec.dtype);
}

std::string Refuses(const PreferredLayoutSpec& spec) {
  return IsImage(spec.shape) ? RefusesStorage(spec.dtype) : "only images (N, C, ...) have one";
}

PlanOrReason MakePreferred(const PreferredLayoutSpec& spec) {
  const bool wide = AllowedInstructionSet() >= InstructionSet::kAvx512;
  const LaneTag tag = wide ? LaneTag::kNChw16c : LaneTag::kNChw8c;
  return std::make_shared<PreferredLayout>("cpu", LaneLayout(spec.shape, spec.dtype, tag));
}

}  // namespace

SINGA_KERNELS(cpu) {
  AddLayoutMaker("cpu", BlockedLayoutNamed);
  Register<ReorderSpec>(DeviceKind::kCpu, "cpu", {.refuses = Refuses, .make = Make});
  Register<PreferredLayoutSpec>(DeviceKind::kCpu, "cpu",
                                {.refuses = Refuses, .make = MakePreferred});
}

}  // namespace singa::cpu
