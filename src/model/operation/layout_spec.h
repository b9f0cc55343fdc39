#pragma once

#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa {

/// The question in which layout images are convolved. The answer is the output layout of the plan,
/// which is never run.
struct PreferredLayoutSpec {
  Shape shape;
  DType dtype = kFloat32;

  const char* op() const { return "ToBlocked"; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
  }
};

}  // namespace singa
