#pragma once

// Elementwise operations on tensors in opaque layouts.

#include <initializer_list>

#include "core/layout/in_type.h"
#include "singa/core/tensor.h"

namespace singa {

/// Whether the padding stays zero under a function, or there is none.
inline bool PaddingStays(const LayoutPtr& layout, bool keeps_zero) {
  return keeps_zero || !layout->is_padded();
}

/// Whether an operand is one number for all elements of a layout without padding. It stays plain.
inline bool IsNumberFor(const LayoutPtr& layout, const Tensor& t) {
  return t.size() == 1 && t.rank() <= layout->shape().rank() && !layout->is_padded();
}

/// Brings all operands into one layout, each in its own type, and returns it; null: all plain. It
/// is the layout of an opaque operand where all operands have its shape or are numbers, it exists
/// for their types, and its padding stays zero. The kernel then runs over the physical elements,
/// padding included. Only the handles change, never the blocks. Empty tensors are ignored.
inline LayoutPtr UnifyLayouts(bool keeps_zero, std::initializer_list<Tensor*> operands) {
  LayoutPtr layout;
  for (const Tensor* t : operands)
    if (!layout && t->layout()) layout = t->layout();
  if (!layout) return nullptr;
  bool together = PaddingStays(layout, keeps_zero);
  for (const Tensor* t : operands)
    together &= t->empty() || IsNumberFor(layout, *t) ||
                (t->shape() == layout->shape() && InType(layout, t->data_type()) != nullptr);
  for (Tensor* t : operands) {
    if (t->empty()) continue;
    const bool laid = together && !IsNumberFor(layout, *t);
    *t = InLayoutOrStrided(*t, laid ? InType(layout, t->data_type()) : nullptr);
  }
  return together ? layout : nullptr;
}

/// A new result in that layout.
inline Tensor ElementwiseOutput(const LayoutPtr& layout, const Shape& shape,
                                const DevicePtr& device, DType dtype) {
  if (!layout) return Tensor(shape, device, dtype);
  const LayoutPtr typed = InType(layout, dtype);
  return Tensor(device, typed ? typed : layout);
}

}  // namespace singa
