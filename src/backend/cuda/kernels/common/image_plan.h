#pragma once

// Plans of kernels over row-major or channels-last images. All images of a call have x's layout, as
// have the results of cuDNN's convolutions, so there is no reorder between two convolutions.

#include <utility>
#include <vector>

#include "backend/cuda/kernels/common/register.h"
#include "backend/cuda/runtime/channels_last.h"
#include "singa/core/tensor.h"

namespace singa::cuda {

/// Layouts of a call's arguments; null is row-major. Trailing ones may be omitted.
struct ImageLayouts {
  std::vector<LayoutPtr> inputs, outputs;
};

/// The layout of an image if the call's images are channels-last, or row-major.
inline LayoutPtr ImageLayout(bool channels_last, const Shape& shape, DType dtype) {
  return channels_last ? cudnn::ChannelsLastOf(shape, dtype) : nullptr;
}

/// Strides of an argument in elements. With `channels_last`, t is an image in that layout.
inline Strides StridesOf(const Tensor& t, bool channels_last) {
  return channels_last ? cudnn::ImageStrides(t.shape(), true) : t.strides();
}

/// A FunctionPlan over images. The Spec tells the function their layout.
template <class Spec>
class ImagePlan final : public Plan {
 public:
  using RunFn = void (*)(const Spec&, const Execution&);
  ImagePlan(const Spec& spec, RunFn run, ImageLayouts layouts, size_t workspace)
      : Plan(kCuda), spec_(spec), run_(run), layouts_(std::move(layouts)), workspace_(workspace) {}
  void Run(const Execution& execution) const override { run_(spec_, execution); }
  size_t workspace_bytes() const override { return workspace_; }
  LayoutPtr input_layout(size_t i) const override { return At(layouts_.inputs, i); }
  LayoutPtr output_layout(size_t i) const override { return At(layouts_.outputs, i); }
  size_t bytes() const override { return sizeof(*this); }

 private:
  static LayoutPtr At(const std::vector<LayoutPtr>& layouts, size_t i) {
    return i < layouts.size() ? layouts[i] : nullptr;
  }

  Spec spec_;
  RunFn run_;
  ImageLayouts layouts_;
  size_t workspace_;
};

/// RegisterKernels for ImagePlan.
template <class Spec, void (*run)(const Spec&, const Execution&),
          ImageLayouts (*layouts)(const Spec&), size_t (*workspace)(const Spec&) = nullptr>
void RegisterImageKernels() {
  Register<Spec>(DeviceKind::kCuda, kCuda, {.make = [](const Spec& spec) -> PlanOrReason {
                   size_t bytes = 0;
                   if constexpr (workspace != nullptr) bytes = workspace(spec);
                   return std::make_shared<ImagePlan<Spec>>(spec, run, layouts(spec), bytes);
                 }});
}

}  // namespace singa::cuda
