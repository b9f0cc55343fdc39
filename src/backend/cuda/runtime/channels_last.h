#pragma once

// The layout of images and filters on a GPU, channels-last: (N, H, W, C) for images and (out, H, W,
// in / group) for filters, which tensor cores read; with one or three spatial axes likewise.
// cuDNN's kernels produce it, and all others accept it.

#include <optional>
#include <string>

#include "singa/core/layout.h"

namespace singa::cudnn {

class ChannelsLast final : public OpaqueLayout {
 public:
  ChannelsLast(const Shape& shape, DType dtype) : OpaqueLayout(shape, dtype) {}
  const char* backend() const override { return "cudnn"; }
  size_t bytes() const override;
  size_t hash() const override;
  bool Equals(const OpaqueLayout& other) const override;
  std::string ToString() const override;
  LayoutPtr WithType(DType dtype) const override;
  std::optional<Strides> strides() const override;
  // In host memory. On a GPU, the kernels of ReorderSpec convert tensors.
  void Pack(const void* plain, void* opaque) const override;
  void Unpack(const void* opaque, void* plain) const override;
};

/// The layout of a tensor with three to five axes; null if it equals row-major order: with one
/// channel or one pixel, or without elements.
LayoutPtr ChannelsLastOf(const Shape& shape, DType dtype);
/// False for a null layout, even if channels-last and row-major order are the same
/// (ChannelsLastOf).
inline bool IsChannelsLast(const LayoutPtr& layout) {
  return dynamic_cast<const ChannelsLast*>(layout.get()) != nullptr;
}

/// Strides of an image's axes in elements, channels-last or row-major.
Strides ImageStrides(const Shape& shape, bool channels_last);

}  // namespace singa::cudnn
