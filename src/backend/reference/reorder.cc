#include <cstring>

#include "model/dispatch/kernel.h"
#include "model/operation/layout/reorder_spec.h"

namespace singa::reference {
namespace {

/// Converts between any two layouts by their Pack and Unpack, through row-major memory.
class ThroughPlain final : public ReorderPlan {
 public:
  explicit ThroughPlain(const ReorderSpec& spec) : ReorderPlan("reference"), spec_(spec) {}
  void Move(Device&, const void* src, void* dst, void* workspace) const override {
    if (spec_.from && spec_.to) {
      spec_.from->Unpack(src, workspace);
      spec_.to->Pack(workspace, dst);
    } else if (spec_.from) {
      spec_.from->Unpack(src, dst);
    } else if (spec_.to) {
      spec_.to->Pack(src, dst);
    } else {
      std::memcpy(dst, src, PlainBytes());
    }
  }
  size_t workspace_bytes() const override { return spec_.from && spec_.to ? PlainBytes() : 0; }
  size_t bytes() const override { return sizeof(*this); }

 private:
  size_t PlainBytes() const {
    return static_cast<size_t>(spec_.shape.Count()) * SizeOf(spec_.dtype);
  }
  ReorderSpec spec_;
};

}  // namespace

SINGA_KERNELS(reference) {
  Register<ReorderSpec>(DeviceKind::kCpu, kReference,
                        {.make = [](const ReorderSpec& spec) -> PlanOrReason {
                          return std::make_shared<ThroughPlain>(spec);
                        }});
  UseReorderPlans();
}

}  // namespace singa::reference
