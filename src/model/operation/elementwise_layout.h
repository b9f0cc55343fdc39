#pragma once

// Elementwise operations on tensors in opaque layouts.

#include <initializer_list>

#include "singa/core/tensor.h"

namespace singa {

/// Brings all operands into one layout and returns it; null: all plain. It is the layout of an
/// opaque operand where all operands have its shape and type and zeros stay zeros (`keeps_zero`).
/// The kernel then runs over the physical elements, padding included. Only the handles change,
/// never the blocks. Empty tensors are ignored.
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

/// A new result in that layout.
inline Tensor ElementwiseOutput(const LayoutPtr& layout, const Shape& shape,
                                const DevicePtr& device, DType dtype) {
  return layout ? Tensor(device, layout) : Tensor(shape, device, dtype);
}

}  // namespace singa
