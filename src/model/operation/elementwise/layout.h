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

/// Brings all operands into one layout, each in its own type, and returns it; null: all plain. It
/// is the layout of an opaque operand where it exists for all types, its padding stays zero, and
/// all operands have its shape or, if it has no padding, are numbers, which stay plain. The kernel
/// then runs over the physical elements, padding included. Only the handles change, never the
/// blocks. Empty tensors are ignored.
inline LayoutPtr UnifyLayouts(bool keeps_zero, std::initializer_list<Tensor*> operands) {
  LayoutPtr layout;
  for (const Tensor* t : operands)
    if (!layout && t->layout()) layout = t->layout();
  if (!layout) return nullptr;
  bool together = PaddingStays(layout, keeps_zero);
  const auto is_number = [&, padded = layout->is_padded()](const Tensor& t) {
    return !padded && t.size() == 1 && t.rank() <= layout->shape().rank();
  };
  for (const Tensor* t : operands)
    together &= t->empty() || is_number(*t) ||
                (t->shape() == layout->shape() && InType(layout, t->data_type()) != nullptr);
  for (Tensor* t : operands) {
    if (t->empty()) continue;
    const bool laid = together && !is_number(*t);
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
