#pragma once

// How elementwise operations meet tensors in opaque layouts.

#include <initializer_list>

#include "singa/core/tensor.h"

namespace singa {

/// Brings all operands into one form and says which. When one of them is opaque, all have its shape
/// and type, and zeros in the padding stay zeros (`keeps_zero`), that is its layout: the kernel
/// then runs over the physical elements. Otherwise null: all plain. Only the handles change, never
/// the blocks; empty tensors are left out.
inline LayoutPtr UnifyLayouts(bool keeps_zero, std::initializer_list<Tensor*> operands) {
  LayoutPtr layout;
  for (const Tensor* t : operands)
    if (!layout && t->layout()) layout = t->layout();
  if (!layout) return nullptr;
  bool together = keeps_zero;
  for (const Tensor* t : operands)
    together &= t->empty() || (t->shape() == layout->shape() && t->data_type() == layout->dtype());
  if (!together) layout = nullptr;
  for (Tensor* t : operands)
    if (!t->empty()) *t = t->ToLayout(layout);
  return layout;
}

/// A fresh result in that form.
inline Tensor ElementwiseOutput(const LayoutPtr& layout, const Shape& shape,
                                const DevicePtr& device, DType dtype) {
  return layout ? Tensor(device, layout) : Tensor(shape, device, dtype);
}

}  // namespace singa
