#pragma once

#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa {

/// A dense tensor from one layout to another (null: row-major).
struct ReorderSpec {
  LayoutPtr from;
  LayoutPtr to;
  Shape shape;
  DType dtype = kFloat32;

  const char* op() const { return "Reorder"; }

  template <class Self, class Visitor>
  static void VisitFields(Self& self, Visitor& visitor) {
    visitor("from", self.from);
    visitor("to", self.to);
    visitor("shape", self.shape);
    visitor("dtype", self.dtype);
  }
};

/// What kernels of ReorderSpec make: a plan that can also move bare memory, since a block that
/// changes its layout is no new tensor.
class ReorderPlan : public Plan {
 public:
  using Plan::Plan;
  virtual void Move(Device& device, const void* src, void* dst, void* workspace) const = 0;
  void Run(const Execution& execution) const override {
    Move(execution.device, execution.in<char>(0), execution.out<char>(0), execution.workspace);
  }
};

/// From now on tensors reorder through the plan cache. Called by a backend that has kernels for it.
void UseReorderPlans();

}  // namespace singa
