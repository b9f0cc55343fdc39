#pragma once

// The declaration of a call's arguments. A Spec lists them once, in the order in which kernels take
// them:
//
//   void VisitArguments(ArgumentVisitor& visit) const {
//     visit.Input("x", shape, dtype, {.layout = &x_layout});
//     visit.Input("scale", {channels()}, dtype, {.given = has_scale});
//     visit.Output("y", shape, dtype);
//   }
//
// By it Call (dispatch.h) checks tensors, brings them into the plan's layouts and allocates
// results, CallChecker (call_check.h) checks calls from files, and MeasuredArguments (measure.h)
// makes tensors for measuring.

#include <cstddef>

#include "singa/core/dtype.h"
#include "singa/core/layout.h"
#include "singa/core/shape.h"

namespace singa {

/// What is special about an argument. By default it is given, and lies in the layout that the plan
/// asks for, or row-major without gaps.
struct ArgumentTraits {
  bool given = true;      ///< false: an empty tensor takes its place
  bool optional = false;  ///< given or empty, as the caller likes
  /// Kernels do not get it, and no empty tensor either. Callers of Call pass an empty one.
  bool left_out = false;
  bool flat = false;     ///< any shape with as many elements; a result's is CallOptions::shape
  bool strided = false;  ///< where the plan asks for no layout, row-major with any strides
  /// An input whose type has to be that of this argument, which messages name.
  const char* typed_as = nullptr;
  /// Row-major with any strides, but the last axis is dense.
  bool dense_rows = false;
  int rows_like = -1;  ///< an output with dense rows: the input in whose order axes 1 and 2 lie
  bool any_device = false;  ///< an input that may lie on another device than the first one
  bool weight = false;      ///< an input that is read more often than written: kept_copy.h
  bool updated = false;     ///< an input that is written in place: row-major, without gaps
  int same_as = -1;         ///< an output: the input that it is, which is `updated`
  /// An output that forward keeps for backward. It is not compared, and may be flat bytes in the
  /// form of one implementation.
  bool saved = false;
  bool private_form = false;  ///< an input in that form
  /// The Spec's field with the layout in which it comes, or which a result follows.
  const LayoutPtr* layout = nullptr;
};

/// Gets the arguments of a call, one after the other.
class ArgumentVisitor {
 public:
  virtual ~ArgumentVisitor() = default;

  void Input(const char* name, const Shape& shape, DType dtype, const ArgumentTraits& traits = {}) {
    VisitInput(name, shape, dtype, traits);
  }
  void Output(const char* name, const Shape& shape, DType dtype,
              const ArgumentTraits& traits = {}) {
    VisitOutput(name, shape, dtype, traits);
  }

  /// Rank 0 where there is no such input. While tensors are made for measuring, only those are
  /// there that have been visited.
  virtual Shape ShapeOfInput(size_t i) const = 0;
  /// Likewise; float32 where there is none.
  virtual DType TypeOfInput(size_t i) const = 0;

 private:
  virtual void VisitInput(const char* name, const Shape& shape, DType dtype,
                          const ArgumentTraits& traits) = 0;
  virtual void VisitOutput(const char* name, const Shape& shape, DType dtype,
                           const ArgumentTraits& traits) = 0;
};

}  // namespace singa
