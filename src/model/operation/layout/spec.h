#pragma once

#include <utility>

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa {

/// Asks in which layout images are convolved. The answer is the output layout of the plan, which
/// never runs.
struct PreferredLayoutSpec {
  Shape shape;
  DType dtype = kFloat32;

  const char* op() const { return "ToBlocked"; }

  SINGA_FIELDS(shape, dtype);
};

/// The plan of a PreferredLayoutSpec.
class PreferredLayout final : public Plan {
 public:
  PreferredLayout(const char* implementation, LayoutPtr layout)
      : Plan(implementation), layout_(std::move(layout)) {}
  void Run(const Execution&) const override {}
  LayoutPtr output_layout(size_t) const override { return layout_; }

 private:
  LayoutPtr layout_;
};

}  // namespace singa
