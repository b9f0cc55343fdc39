#pragma once

#include "model/dispatch/spec.h"
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
  void Sample(spot::Sampler& sampler) const;

  SINGA_FIELDS(from, to, shape, dtype);
};

/// The plans of ReorderSpec. They can also move bare memory, because a block that changes its
/// layout is no new tensor.
class ReorderPlan : public Plan {
 public:
  using Plan::Plan;
  virtual void Move(Device& device, const void* src, void* dst, void* workspace) const = 0;
  void Run(const Execution& execution) const override {
    Move(execution.device, execution.in<char>(0), execution.out<char>(0), execution.workspace);
  }
};

/// Makes tensors reorder through the plan cache. A backend with kernels of ReorderSpec calls it.
void UseReorderPlans();

}  // namespace singa
