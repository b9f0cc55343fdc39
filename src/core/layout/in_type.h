#pragma once

#include "singa/core/layout.h"
#include "singa/core/tensor.h"

namespace singa {

/// `layout` for elements of this type; null if the backend has none.
inline LayoutPtr InType(const LayoutPtr& layout, DType dtype) {
  return layout->dtype() == dtype ? layout : layout->WithType(dtype);
}

/// `t` in that layout; null: plain, with any strides.
inline Tensor InLayoutOrStrided(const Tensor& t, const LayoutPtr& layout) {
  return layout ? t.ToLayout(layout) : t.Plain();
}

}  // namespace singa
