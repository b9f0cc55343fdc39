// Reorders between row-major and channels-last order: a strided copy.

#include "backend/cuda/runtime/channels_last.h"
#include "model/dispatch/kernel.h"
#include "model/operation/layout/reorder_spec.h"
#include "model/operation/layout/spec.h"

namespace singa::cudnn {
namespace {

std::string Refuses(const ReorderSpec& spec) {
  for (const LayoutPtr& layout : {spec.from, spec.to})
    if (layout && !IsChannelsLast(layout))
      return "layout " + layout->ToString() + " was made by " + layout->backend();
  return "";
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
  /// Views memory with a layout as a plain tensor with strides.
  Tensor View(Device& device, const LayoutPtr& layout, void* data) const {
    const Strides strides = ImageStrides(spec_.shape, layout != nullptr);
    const size_t bytes = static_cast<size_t>(spec_.shape.Count()) * SizeOf(spec_.dtype);
    const auto block = std::make_shared<Block>(device.shared_from_this(), data, bytes, [] {});
    return Tensor(block, spec_.shape, strides, 0, spec_.dtype);
  }

  ReorderSpec spec_;
};

PlanOrReason Make(const ReorderSpec& spec) { return std::make_shared<StridedReorder>(spec); }

/// Tensors that are not images, and types that cuDNN does not convolve, keep their layout.
PlanOrReason MakePreferred(const PreferredLayoutSpec& spec) {
  const bool convolved =
      spec.dtype == kFloat32 || spec.dtype == kFloat16 || spec.dtype == kBFloat16;
  return std::make_shared<PreferredLayout>(
      "cudnn", convolved ? ChannelsLastOf(spec.shape, spec.dtype) : nullptr);
}

}  // namespace

SINGA_KERNELS(cuda_libraries) {
  Register<PreferredLayoutSpec>(DeviceKind::kCuda, "cudnn", {.make = MakePreferred});
  Register<ReorderSpec>(DeviceKind::kCuda, "cudnn", {.refuses = Refuses, .make = Make});
}

}  // namespace singa::cudnn
