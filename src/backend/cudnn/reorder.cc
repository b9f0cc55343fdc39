// Between row-major order and channels last: a copy by strides.

#include "backend/cudnn/channels_last.h"
#include "backend/cudnn/library/register.h"
#include "model/operation/kernel.h"
#include "model/operation/layout_spec.h"
#include "model/operation/reorder_spec.h"

namespace singa::cudnn {
namespace {

std::string Refuses(const ReorderSpec& spec) {
  for (const LayoutPtr& layout : {spec.from, spec.to})
    if (layout && !IsChannelsLast(layout))
      return "layout " + layout->ToString() + " was made by " + layout->backend();
  return spec.shape.rank() == 4 ? "" : "only tensors with four axes have other layouts";
}

class StridedReorder final : public ReorderPlan {
 public:
  explicit StridedReorder(const ReorderSpec& spec) : ReorderPlan("cudnn"), spec_(spec) {}
  void Move(Device& device, const void* src, void* dst, void*) const override {
    device.CopyElements(View(device, spec_.from, const_cast<void*>(src)),
                        View(device, spec_.to, dst));
  }
  std::string Describe() const override { return "cudnn copy by strides"; }

 private:
  /// Memory in a layout, seen as a plain tensor with strides.
  Tensor View(Device& device, const LayoutPtr& layout, void* data) const {
    Strides strides = ContiguousStrides(spec_.shape);
    const auto places = ImageStrides(spec_.shape, layout != nullptr);
    for (int i = 0; i < 4; ++i) strides[i] = places[static_cast<size_t>(i)];
    const size_t bytes = static_cast<size_t>(spec_.shape.Count()) * SizeOf(spec_.dtype);
    const auto block = std::make_shared<Block>(device.shared_from_this(), data, bytes, [] {});
    return Tensor(block, spec_.shape, strides, 0, spec_.dtype);
  }

  ReorderSpec spec_;
};

PlanPtr MakePlan(const ReorderSpec& spec) { return std::make_shared<StridedReorder>(spec); }

/// Names a layout; there is nothing to run.
class PreferredLayout final : public Plan {
 public:
  explicit PreferredLayout(LayoutPtr layout) : Plan("cudnn"), layout_(std::move(layout)) {}
  void Run(const Execution&) const override {}
  LayoutPtr output_layout(size_t) const override { return layout_; }

 private:
  LayoutPtr layout_;
};

/// What is no image stays as it is, and so does what cuDNN does not convolve.
PlanPtr MakePreferred(const PreferredLayoutSpec& spec) {
  const bool convolved =
      spec.dtype == kFloat32 || spec.dtype == kFloat16 || spec.dtype == kBFloat16;
  return std::make_shared<PreferredLayout>(convolved ? ChannelsLastOf(spec.shape, spec.dtype)
                                                     : nullptr);
}

}  // namespace

void RegisterReorder() {
  Register<PreferredLayoutSpec>(
      "cudnn", [](const PreferredLayoutSpec&) { return std::string(); }, MakePreferred, nullptr,
      nullptr, DeviceKind::kCuda);
  Register<ReorderSpec>("cudnn", Refuses, MakePlan, nullptr, nullptr, DeviceKind::kCuda);
}

}  // namespace singa::cudnn
