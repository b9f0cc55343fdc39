#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"

namespace singa {

/// An axis of a contiguous tensor: (outer, length, inner).
struct AxisLines {
  int64_t outer;
  int64_t length;
  int64_t inner;

  AxisLines() = default;
  AxisLines(const Shape& shape, int axis)
      : outer(shape.Count(0, axis)),
        length(shape[axis]),
        inner(shape.Count(axis + 1, shape.rank())) {}
  constexpr int64_t lines() const { return outer * inner; }  // kernels call it
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    v("outer", self.outer);
    v("length", self.length);
    v("inner", self.inner);
  }
};

/// Input: x (outer, length, inner), contiguous. Outputs: values and int64 indices (outer, k,
/// inner), in the order of TopK.
struct TopKSpec : AxisLines {
  DType dtype;
  int64_t k;
  bool largest;

  const char* op() const { return "TopK"; }
  void CheckCall(CallChecker& call) const;
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    AxisLines::VisitFields(self, v);
    v("dtype", self.dtype);
    v("k", self.k);
    v("largest", self.largest);
  }
};

/// Input: x, contiguous, of a float type or int64. Output: y like x.
struct CumSumSpec : AxisLines {
  DType dtype;
  bool exclusive;
  bool reverse;

  static constexpr bool kLinear = true;
  const char* op() const { return "CumSum"; }
  void CheckCall(CallChecker& call) const;
  int64_t sum_length() const { return length; }
  template <class Self, class V>
  static void VisitFields(Self& self, V& v) {
    AxisLines::VisitFields(self, v);
    v("dtype", self.dtype);
    v("exclusive", self.exclusive);
    v("reverse", self.reverse);
  }
};

}  // namespace singa
