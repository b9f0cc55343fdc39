#pragma once

#include <span>
#include <vector>

#include "model/operation/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/plan.h"
#include "singa/core/shape.h"

namespace singa {

/// Inputs: tensors of one type. Output: all of them along `axis`. Where the plan wants the output
/// in a layout, the inputs come in those in which SplitSpec would give them back. Otherwise they
/// are plain with any strides, and the output is contiguous.
struct ConcatSpec {
  DType dtype;
  int axis;
  // Where an input is opaque; else nothing, so that one plan does for all shapes.
  LayoutPtr x_layout = nullptr;  ///< of such an input, which the output is to follow
  Shape y_shape = {};

  const char* op() const { return "Concat"; }
  /// Those in which Split would give the inputs back.
  std::vector<LayoutPtr> InputLayouts(const Plan& plan, std::span<const Tensor> inputs) const;
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("axis", self.axis);
    v("x_layout", self.x_layout);
    v("y_shape", self.y_shape);
  }
};

/// One piece of an opaque tensor as a copy, for plans that want it so: a view would make it plain.
/// Input: x. Output: x[start : start + length] along `axis`.
struct SplitSpec {
  DType dtype;
  Shape x_shape;
  int axis;
  int64_t start;
  int64_t length;
  LayoutPtr x_layout = nullptr;

  const char* op() const { return "Split"; }
  void CheckCall(CallChecker& call) const;
  Shape OutShape() const {
    Shape shape = x_shape;
    shape[axis] = length;
    return shape;
  }
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("x_shape", self.x_shape);
    v("axis", self.axis);
    v("start", self.start);
    v("length", self.length);
    v("x_layout", self.x_layout);
  }
};

/// Input: dy, plain with any strides. Output: dx, contiguous: zero but for dy in the view of dx
/// that has these strides and starts at this element.
struct SliceBackwardSpec {
  DType dtype;
  int64_t offset;
  Strides strides;

  const char* op() const { return "SliceBackward"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("offset", self.offset);
    v("strides", self.strides);
  }
};

/// Inputs: x, plain with any strides; indices and updates, contiguous. Output: contiguous.
struct ScatterElementsSpec {
  DType dtype;
  DType index_dtype;
  Shape x_shape;
  Shape index_shape;
  int axis;

  const char* op() const { return "ScatterElements"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("index_dtype", self.index_dtype);
    v("x_shape", self.x_shape);
    v("index_shape", self.index_shape);
    v("axis", self.axis);
  }
};

/// Inputs: dy and indices, contiguous. Outputs: dx, dupdates.
struct ScatterElementsBackwardSpec {
  DType dtype;
  DType index_dtype;
  Shape x_shape;
  Shape index_shape;
  int axis;

  const char* op() const { return "ScatterElementsBackward"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("index_dtype", self.index_dtype);
    v("x_shape", self.x_shape);
    v("index_shape", self.index_shape);
    v("axis", self.axis);
  }
};

/// Input: indices (outer, inner), contiguous. Output: (outer, depth, inner). Scalars: off, on.
struct OneHotSpec {
  DType dtype;
  DType index_dtype;
  int64_t outer;
  int64_t depth;
  int64_t inner;

  const char* op() const { return "OneHot"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("index_dtype", self.index_dtype);
    v("outer", self.outer);
    v("depth", self.depth);
    v("inner", self.inner);
  }
};

/// NonZero runs in two steps, because its result's size depends on the values: counts of the
/// non-zero elements in pieces of kNonZeroPiece, then the positions, where each piece knows what
/// lies before it.
inline constexpr int64_t kNonZeroPiece = 65536;

/// Input: x, contiguous. Output: int64 (pieces).
struct CountNonZeroSpec {
  DType dtype;

  const char* op() const { return "CountNonZero"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
  }
};

/// Inputs: x, contiguous; int64 (pieces), non-zero elements before each piece. Output: int64 (rank,
/// count).
struct NonZeroSpec {
  DType dtype;

  const char* op() const { return "NonZero"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
  }
};

}  // namespace singa
