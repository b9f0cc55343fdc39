#pragma once

// Checks of one tensor. Messages name the operation, the argument and what was expected.

#include "model/dispatch/arguments.h"
#include "singa/core/device.h"
#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// `t` is not empty.
inline void CheckGiven(const char* op, const char* name, const Tensor& t) {
  Check(!t.empty(), op, name, " is an empty tensor (None)");
}

inline void CheckDType(const char* op, const char* name, const Tensor& t, DType dtype) {
  CheckGiven(op, name, t);
  Check<TypeError>(t.data_type() == dtype, op, name, " must be ", DTypeName(dtype), ", got ", t);
}

inline void CheckShapeIs(const char* op, const char* name, const Tensor& t, const Shape& shape) {
  CheckGiven(op, name, t);
  Check(t.shape() == shape, op, name, " must have shape ", shape, ", got ", t);
}

/// Flat bytes, in a form that only one implementation reads.
inline bool IsPrivate(const Tensor& t) { return t.data_type() == kUInt8 && t.rank() == 1; }

/// `t` is not empty, and is what an argument is declared to be.
inline void CheckDeclared(const char* op, const char* name, const Tensor& t, const Shape& shape,
                          DType dtype, const ArgumentTraits& traits) {
  CheckGiven(op, name, t);
  if (traits.private_form)
    return Check(IsPrivate(t), op, name, " must be in the form of one implementation, got ", t);
  if (!traits.flat) {
    CheckShapeIs(op, name, t, shape);
  } else if (t.size() != shape.Count()) {
    Check(false, op, name, " must have ", shape.Count(), " elements, got ", t);
  }
  if (t.data_type() == dtype) return;
  Check<TypeError>(!traits.typed_as, op, name, " must have the type of ", traits.typed_as, ", ",
                   DTypeName(dtype), ", got ", t);
  CheckDType(op, name, t, dtype);
}

/// `t` lies on the device of `other`.
inline void CheckSameDevice(const char* op, const char* name, const Tensor& t,
                            const char* other_name, const Tensor& other) {
  if (t.empty() || t.block()->device() == other.block()->device()) return;
  Check(false, op, name, " is on ", t.block()->device()->name(), ", ", other_name, " on ",
        other.block()->device()->name());
}

}  // namespace singa
