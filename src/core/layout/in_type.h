#pragma once

#include "singa/core/layout.h"

namespace singa {

/// `layout` for elements of this type; null if the backend has none.
inline LayoutPtr InType(const LayoutPtr& layout, DType dtype) {
  return layout->dtype() == dtype ? layout : layout->WithType(dtype);
}

}  // namespace singa
