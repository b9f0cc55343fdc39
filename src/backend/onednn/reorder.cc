#include "backend/onednn/engine.h"
#include "core/layout/blocked_reorder.h"
#include "model/dispatch/kernel.h"
#include "model/operation/layout/reorder_spec.h"

namespace singa::onednn {
namespace {

/// Descriptors of both sides with the same axes; none where oneDNN has no format.
struct Sides {
  std::optional<dnnl::memory::desc> from, to;
};

Sides SidesOf(const ReorderSpec& spec) {
  const BlockedLayout* from = AsBlocked(spec.from);
  const BlockedLayout* to = AsBlocked(spec.to);
  return {DescOf(from ? from->placement() : to->plain(), spec.dtype),
          DescOf(to ? to->placement() : from->plain(), spec.dtype)};
}

dnnl::reorder::primitive_desc DescribeReorder(const Sides& sides) {
  return {Engine(), *sides.from, Engine(), *sides.to, ScratchpadAttr()};
}

int ThreadsFor(const ReorderSpec& spec) {
  return ThreadsWorth(spec.shape.Count(), kElementsWorthThreads);
}

class DnnlReorder final : public ReorderPlan {
 public:
  DnnlReorder(const Sides& sides, const dnnl::reorder::primitive_desc& pd)
      : ReorderPlan("onednn"),
        implementation_(pd.impl_info_str()),
        bound_(dnnl::reorder(pd),
               {{DNNL_ARG_FROM, *sides.from, nullptr}, {DNNL_ARG_TO, *sides.to, nullptr}},
               pd.scratchpad_desc()) {}
  void Move(Device&, const void* src, void* dst, void* workspace) const override {
    const void* pointers[] = {src, dst};
    bound_.Run("Reorder", pointers, workspace);
  }
  std::string Describe() const override { return "onednn " + implementation_; }
  size_t workspace_bytes() const override { return bound_.scratchpad_bytes(); }
  size_t bytes() const override { return size_t{24} << 10; }

 private:
  std::string implementation_;
  BoundPrimitive bound_;
};

std::string Refuses(const ReorderSpec& spec) { return RefusesBlockedReorder(spec.from, spec.to); }

PlanOrReason Make(const ReorderSpec& spec) {
  return Guarded(spec.op(), ThreadsFor(spec), [&]() -> PlanOrReason {
    const Sides sides = SidesOf(spec);
    if (!sides.from || !sides.to)
      return PlanOrReason::None("oneDNN has no format for one of the layouts");
    const auto pd = DescribeReorder(sides);
    if (IsReference(pd.impl_info_str())) return OnlyReference();
    return std::make_shared<DnnlReorder>(sides, pd);
  });
}

}  // namespace

SINGA_KERNELS(onednn) {
  Register<ReorderSpec>(DeviceKind::kCpu, "onednn", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::onednn
