#pragma once

// Checks of one tensor. Messages name the operation, the argument and what was expected.

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

/// `t` lies on the device of `other`.
inline void CheckSameDevice(const char* op, const char* name, const Tensor& t,
                            const char* other_name, const Tensor& other) {
  if (t.empty() || t.block()->device() == other.block()->device()) return;
  Check(false, op, name, " is on ", t.block()->device()->name(), ", ", other_name, " on ",
        other.block()->device()->name());
}

}  // namespace singa
