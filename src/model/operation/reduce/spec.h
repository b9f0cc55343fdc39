#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/export.h"
#include "singa/core/shape.h"
#include "singa/operation/reduce.h"

namespace singa {

/// Input: x, plain with any strides. Output: y, contiguous, of `out_dtype`.
struct ReduceSpec {
  ReduceOp reduce;
  DType dtype;
  DType out_dtype;
  Shape shape;    ///< of x
  uint32_t axes;  ///< bit i: axis i is reduced

  SINGA_API const char* op() const;
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("reduce", self.reduce);
    v("dtype", self.dtype);
    v("out_dtype", self.out_dtype);
    v("shape", self.shape);
    v("axes", self.axes);
  }
};

/// Inputs: dy, x, y, plain with any strides. Where the derivative does not need y, dy comes in its
/// place. All have x's shape: dy and y are broadcast with stride 0 along the reduced axes. Output:
/// dx, contiguous.
struct ReduceBackwardSpec {
  ReduceOp reduce;
  DType dtype;
  Shape shape;
  uint32_t axes;

  SINGA_API const char* op() const;
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("reduce", self.reduce);
    v("dtype", self.dtype);
    v("shape", self.shape);
    v("axes", self.axes);
  }
};

/// Input: x, plain with any strides. Output: int64 positions along `axis`, contiguous.
struct ArgReduceSpec {
  bool largest;
  DType dtype;
  Shape shape;
  int axis;

  const char* op() const { return largest ? "ArgMax" : "ArgMin"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("largest", self.largest);
    v("dtype", self.dtype);
    v("shape", self.shape);
    v("axis", self.axis);
  }
};

/// Inputs: scores (N, C) and labels (N), contiguous. Output: one int64.
struct CountTopKSpec {
  DType dtype;
  DType label_dtype;
  int64_t rows;
  int64_t classes;
  int64_t k;

  const char* op() const { return "CountTopK"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("dtype", self.dtype);
    v("label_dtype", self.label_dtype);
    v("rows", self.rows);
    v("classes", self.classes);
    v("k", self.k);
  }
};

}  // namespace singa
