#pragma once

// Elements and slices that an index argument names one by one: GatherElements, GatherND and their
// scatters. A first step turns the indices into numbers of rows of x, a matrix (rows, width). Then
// a gather is that of gather_spec.h along axis 0, and a scatter one of the Specs below.

#include <algorithm>
#include <array>
#include <cstdint>

#include "core/tensor/strided.h"
#include "model/dispatch/arguments.h"
#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/core/shape.h"
#include "singa/operation/indexing.h"

namespace singa {

enum class IndexedOp : int { kGatherElements, kScatterElements, kGatherND, kScatterND };
template <>
inline constexpr int kEnumSize<IndexedOp> = 4;
template <>
inline constexpr int kEnumSize<ScatterReduction> = 5;

/// From indices to the numbers of the rows that they name.
struct PositionsSpec {
  IndexedOp indexed;
  DType index_dtype;
  Shape x_shape;
  Shape index_shape;
  int axis;  ///< of ...ND: the number of batch axes

  const char* op() const {
    constexpr std::array kNames = {"GatherElements", "ScatterElements", "GatherND", "ScatterND"};
    return kNames[static_cast<size_t>(indexed)];
  }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("indices", index_shape, index_dtype);
    visit.Output("positions", {count()}, kInt64);
  }
  void CheckFields(const CallChecker& call) const;
  SINGA_FIELDS(indexed, index_dtype, x_shape, index_shape, axis);

  bool by_elements() const {
    return indexed == IndexedOp::kGatherElements || indexed == IndexedOp::kScatterElements;
  }
  /// Indices that name one row.
  int tuple() const { return by_elements() ? 1 : static_cast<int>(index_shape.back()); }
  /// Number of positions.
  int64_t count() const {
    return by_elements() ? index_shape.Count() : index_shape.Count(0, index_shape.rank() - 1);
  }
  /// Axes of x behind those that a position replaces.
  int first_axis_of_row() const { return by_elements() ? x_shape.rank() : axis + tuple(); }
  int64_t rows() const { return x_shape.Count(0, first_axis_of_row()); }
  int64_t width() const { return x_shape.Count(first_axis_of_row(), x_shape.rank()); }

  /// Length of the axis that index j of a tuple is a position along, and its step in rows.
  int64_t length(int j) const { return x_shape[axis + j]; }
  int64_t step(int j) const { return x_shape.Count(axis + j + 1, first_axis_of_row()); }
  /// Array 0: the positions. Array 1: the row of each, without the indices' part.
  StridedSpace<2> base() const {
    if (!by_elements()) {
      const int64_t batch = x_shape.Count(0, axis);
      const int64_t each = index_shape.Count(axis, index_shape.rank() - 1);
      return {{batch, each}, {Strides{each, 1}, {x_shape.Count(axis, first_axis_of_row()), 0}}};
    }
    Strides rows = ContiguousStrides(x_shape);
    rows[axis] = 0;
    return {index_shape, {ContiguousStrides(index_shape), rows}};
  }
};

/// The fields of both directions.
struct ScatterFields {
  ScatterReduction reduction;
  DType dtype;
  int64_t rows;   ///< of x
  int64_t width;  ///< of a row
  int64_t count;  ///< of updates

  void CheckFields(const CallChecker& call) const;
  int64_t sum_length() const { return count + 1; }
  SINGA_FIELDS(reduction, dtype, rows, width, count);
};

/// The updates of a row are joined with it in their order.
struct ScatterSpec : ScatterFields {
  const char* op() const { return "Scatter"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("x", {rows * width}, dtype, {.flat = true});
    visit.Input("positions", {count}, kInt64);
    visit.Input("updates", {count * width}, dtype, {.flat = true});
    visit.Output("y", visit.ShapeOfInput(0), dtype);
  }
};

struct ScatterBackwardSpec : ScatterFields {
  const char* op() const { return "ScatterBackward"; }
  void VisitArguments(ArgumentVisitor& visit) const {
    visit.Input("dy", {rows * width}, dtype, {.flat = true});
    visit.Input("positions", {count}, kInt64);
    visit.Input("x", {rows * width}, dtype, {.given = needs_x(), .flat = true});
    visit.Input("updates", {count * width}, dtype, {.given = needs_x(), .flat = true});
    visit.Input("y", {rows * width}, dtype, {.given = needs_y(), .flat = true});
    visit.Output("dx", visit.ShapeOfInput(0), dtype);
    visit.Output("dupdates", {count * width}, dtype, {.flat = true});
  }
  void CheckFields(const CallChecker& call) const;
  bool needs_x() const { return reduction >= ScatterReduction::kMul; }
  bool needs_y() const { return reduction >= ScatterReduction::kMax; }
};

}  // namespace singa
