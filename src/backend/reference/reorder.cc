#include <cstring>

#include "backend/reference/register.h"
#include "model/operation/kernel.h"
#include "model/operation/reorder_spec.h"

namespace singa::reference {
namespace {

/// Between any two layouts, by what they know of themselves: through row-major memory.
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

void RegisterReorder() {
  Register<ReorderSpec>(
      "reference", [](const ReorderSpec&) { return std::string(); },
      [](const ReorderSpec& spec) -> PlanPtr { return std::make_shared<ThroughPlain>(spec); });
  UseReorderPlans();
}

}  // namespace singa::reference
