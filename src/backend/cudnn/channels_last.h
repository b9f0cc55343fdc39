#pragma once

// The layout of images and filters on a GPU: channels side by side, (N, H, W, C) for images and
// (out, H, W, in / group) for filters, which is what tensor cores read. cuDNN's kernels make it and
// all others take it.

#include <array>
#include <cstdint>

#include "singa/core/layout.h"

namespace singa::cudnn {

class ChannelsLast final : public OpaqueLayout {
 public:
  ChannelsLast(const Shape& shape, DType dtype) : OpaqueLayout(shape, dtype) {}
  const char* backend() const override { return "cudnn"; }
  size_t bytes() const override;
  size_t hash() const override;
  bool Equals(const OpaqueLayout& other) const override;
  std::string ToString() const override { return "nhwc"; }
  LayoutPtr WithType(DType dtype) const override;
  // In host memory; on a GPU tensors go through the kernels of ReorderSpec.
  void Pack(const void* plain, void* opaque) const override;
  void Unpack(const void* opaque, void* plain) const override;
};

/// Of a tensor with four axes; null where row-major order is the same: one channel, one pixel, or
/// nothing at all.
LayoutPtr ChannelsLastOf(const Shape& shape, DType dtype);
/// Null is what ChannelsLastOf gives where row-major order is the same; so only ask with that in
/// mind.
inline bool IsChannelsLast(const LayoutPtr& layout) {
  return dynamic_cast<const ChannelsLast*>(layout.get()) != nullptr;
}

/// Distance of neighbours along N, C, H, W in elements, channels last or row-major.
std::array<int64_t, 4> ImageStrides(const Shape& shape, bool channels_last);

}  // namespace singa::cudnn
