#pragma once

#include "model/dispatch/arguments.h"
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
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(outer, length, inner);
};

/// Of x (outer, length, inner) the values and their places (outer, k, inner), in the order of TopK.
struct TopKSpec : AxisLines {
  DType dtype;
  int64_t k;
  bool largest;

  const char* op() const { return "TopK"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", {lines() * length}, dtype, {.flat = true});
    visit.Output("values", {lines() * k}, dtype, {.flat = true});
    visit.Output("indices", {lines() * k}, kInt64, {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_MORE_FIELDS(AxisLines, dtype, k, largest);
};

/// Of x, of a float type or int64.
struct CumSumSpec : AxisLines {
  DType dtype;
  bool exclusive;
  bool reverse;

  static constexpr bool kLinear = true;
  const char* op() const { return "CumSum"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", {lines() * length}, dtype, {.flat = true});
    visit.Output("y", visit.ShapeOfInput(0), dtype);
  }
  void CheckFields(const CallChecker& call) const;
  int64_t sum_length() const { return length; }
  SINGA_MORE_FIELDS(AxisLines, dtype, exclusive, reverse);
};

}  // namespace singa
