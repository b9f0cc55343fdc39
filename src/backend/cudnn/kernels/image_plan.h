#pragma once

// Plans of kernels over images that lie row-major or channels-last. All images of a call lie as x
// does: so do the results of cuDNN's convolutions, and nothing between two of them is reordered.

#include <utility>
#include <vector>

#include "backend/cudnn/channels_last.h"
#include "backend/cudnn/kernels/register.h"
#include "singa/core/tensor.h"

namespace singa::cuda {

/// Of a call's arguments; those at the end may be left out. Null is row-major.
struct ImageLayouts {
  std::vector<LayoutPtr> inputs, outputs;
};

/// The layout of an image in the company of others that lie channels-last, or row-major.
inline LayoutPtr ImageLayout(bool channels_last, const Shape& shape, DType dtype) {
  return channels_last ? cudnn::ChannelsLastOf(shape, dtype) : nullptr;
}

/// Distances of neighbours in an argument's memory, in elements: of an image in such company, or of
/// any tensor that does not lie channels-last.
inline Strides StridesOf(const Tensor& t, bool channels_last) {
  Strides strides = t.strides();
  if (!channels_last) return strides;
  int axis = 0;
  for (const int64_t stride : cudnn::ImageStrides(t.shape(), true)) strides[axis++] = stride;
  return strides;
}

/// A FunctionPlan over images; the Spec tells the function how they lie.
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

/// RegisterKernels for such plans.
template <class Spec, void (*run)(const Spec&, const Execution&),
          ImageLayouts (*layouts)(const Spec&), size_t (*workspace)(const Spec&) = nullptr>
void RegisterImageKernels() {
  Register<Spec>(
      kCuda, [](const Spec&) { return std::string(); },
      [](const Spec& spec) -> PlanPtr {
        size_t bytes = 0;
        if constexpr (workspace != nullptr) bytes = workspace(spec);
        return std::make_shared<ImagePlan<Spec>>(spec, run, layouts(spec), bytes);
      },
      nullptr, nullptr, DeviceKind::kCuda);
}

}  // namespace singa::cuda
