#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa {

/// Inputs: tensors of one type. Output: the inputs joined along `axis`. Where the plan wants the
/// output in an opaque layout, the inputs come in InputLayouts, also those that are null: an image
/// of one channel is channels-last in row-major order, without gaps. Otherwise they are plain with
/// any strides, and the output is contiguous.
struct ConcatSpec {
  DType dtype;
  int axis;
  // Set where an input is opaque. Otherwise empty, so that one plan serves all shapes.
  LayoutPtr x_layout = nullptr;  ///< of the opaque input that the output follows
  Shape y_shape = {};

  const char* op() const { return "Concat"; }
  /// The layouts in which SplitSpec would return the inputs. Nothing where the plan follows
  /// strides.
  std::optional<std::vector<LayoutPtr>> InputLayouts(const Plan& plan,
                                                     std::span<const Tensor> inputs) const;
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(dtype, axis, x_layout, y_shape);
};

/// A copy of one piece of an opaque tensor, x[start : start + length] along `axis`. A view would
/// make the tensor plain.
struct SplitSpec {
  DType dtype;
  Shape x_shape;
  int axis;
  int64_t start;
  int64_t length;
  LayoutPtr x_layout = nullptr;

  const char* op() const { return "Split"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", x_shape, dtype, {.strided = true, .layout = &x_layout});
    visit.Output("y", OutShape(), dtype);
  }
  void CheckFields(const CallChecker& call) const;
  Shape OutShape() const {
    Shape shape = x_shape;
    shape[axis] = length;
    return shape;
  }
  SINGA_FIELDS(dtype, x_shape, axis, start, length, x_layout);
};

/// Input: dy, plain with any strides. Output: dx, contiguous. dx is dy in the view that starts at
/// element `offset` and has `strides`, and zero elsewhere.
struct SliceBackwardSpec {
  DType dtype;
  int64_t offset;
  Strides strides;

  const char* op() const { return "SliceBackward"; }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(dtype, offset, strides);
};

/// From indices (outer, inner) to (outer, depth, inner). Scalars: off, on.
struct OneHotSpec {
  DType dtype;
  DType index_dtype;
  int64_t outer;
  int64_t depth;
  int64_t inner;

  const char* op() const { return "OneHot"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("indices", {outer * inner}, index_dtype, {.flat = true});
    visit.Output("y", {outer * depth * inner}, dtype, {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(dtype, index_dtype, outer, depth, inner);
};

/// NonZero runs in two steps, because the size of its result depends on the values. The first step
/// counts the non-zero elements of each piece of kNonZeroPiece elements. The second step writes the
/// positions; each piece starts behind those of the pieces before it.
inline constexpr int64_t kNonZeroPiece = 65536;

struct CountNonZeroSpec {
  DType dtype;

  const char* op() const { return "CountNonZero"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    const Shape shape = visit.ShapeOfInput(0);
    visit.Input("x", shape, dtype);
    visit.Output("counts", {(shape.Count() + kNonZeroPiece - 1) / kNonZeroPiece}, kInt64);
  }
  void CheckFields(const CallChecker&) const {}
  SINGA_FIELDS(dtype);
};

/// Inputs: x, contiguous; int64 (pieces), the number of non-zero elements before each piece.
/// Output: int64 (rank, count).
struct NonZeroSpec {
  DType dtype;

  const char* op() const { return "NonZero"; }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(dtype);
};

}  // namespace singa
