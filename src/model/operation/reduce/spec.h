#pragma once

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/export.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"
#include "singa/operation/reduce.h"

namespace singa {

/// The axes of a sum for each channel of images (N, C, ...), as in ReduceSpec.
inline uint32_t AxesBesideChannels(const Shape& images) {
  return ((uint32_t{1} << images.rank()) - 1) & ~2u;
}

struct ReduceSpec {
  ReduceOp reduce;
  DType dtype;
  DType out_dtype;
  Shape shape;    ///< of x
  uint32_t axes;  ///< bit i: axis i is reduced
  LayoutPtr x_layout = nullptr;

  SINGA_API const char* op() const;
  void VisitArguments(ArgumentVisitor& visit) const;
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(reduce, dtype, out_dtype, shape, axes, x_layout);
};

/// dy and y are broadcast to x's shape with stride 0 along the reduced axes. Where the derivative
/// does not need y, dy comes in its place.
struct ReduceBackwardSpec {
  ReduceOp reduce;
  DType dtype;
  Shape shape;
  uint32_t axes;

  SINGA_API const char* op() const;
  void VisitArguments(ArgumentVisitor& visit) const {
    for (const char* name : {"dy", "x", "y"}) visit.Input(name, shape, dtype, {.strided = true});
    visit.Output("dx", shape, dtype);
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(reduce, dtype, shape, axes);
};

/// Positions along `axis`.
struct ArgReduceSpec {
  bool largest;
  DType dtype;
  Shape shape;
  int axis;

  const char* op() const { return largest ? "ArgMax" : "ArgMin"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", shape, dtype, {.strided = true});
    visit.Output("y", {shape.Count(0, axis) * shape.Count(axis + 1, shape.rank())}, kInt64,
                 {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(largest, dtype, shape, axis);
};

struct CountTopKSpec {
  DType dtype;
  DType label_dtype;
  int64_t rows;
  int64_t classes;
  int64_t k;

  const char* op() const { return "CountTopK"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("scores", {rows, classes}, dtype);
    visit.Input("labels", {rows}, label_dtype);
    visit.Output("count", {}, kInt64);
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(dtype, label_dtype, rows, classes, k);
};

}  // namespace singa
