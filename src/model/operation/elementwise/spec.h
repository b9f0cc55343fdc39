#pragma once

#include "model/dispatch/spec.h"
#include "singa/core/dtype.h"
#include "singa/operation/elementwise.h"

// These Specs have no shapes and no layouts. One plan takes all of them, so the cache holds one
// entry for each function and type. A result may take over the memory of the first input
// (kInPlaceInput) where both have the same size.

namespace singa {

/// "Relu", "ReluBackward", "Add", "AddBackward" ...
SINGA_API const char* UnaryName(UnaryOp op);
SINGA_API const char* UnaryBackwardName(UnaryOp op);
SINGA_API const char* BinaryName(BinaryOp op);
SINGA_API const char* BinaryBackwardName(BinaryOp op);

/// Whether the function is defined for integers and bool, too.
bool TakesIntegers(UnaryOp op);
/// Whether f(0) = 0, so that the padding of an opaque layout stays zero.
bool KeepsZero(UnaryOp op, double a, double b);
bool KeepsZero(BinaryOp op);
/// Whether 0·f'(0) = 0, for the same reason.
bool BackwardKeepsZero(UnaryOp op, double a, double b);

/// Scalars of the unary specs: v[0] = a, v[1] = b.
struct UnarySpec {
  UnaryOp kind;
  DType dtype;
  static constexpr int kInPlaceInput = 0;
  const char* op() const { return UnaryName(kind); }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(kind, dtype);
};

/// Inputs dy, and x or y as NeededByBackward says (x for kXOrY).
struct UnaryBackwardSpec : UnarySpec {
  const char* op() const { return UnaryBackwardName(kind); }
  void CheckCall(CallChecker& call) const;
};

/// Whether ResultType of tensors of these types can be `dtype`.
bool IsResultType(DType dtype, DType a, DType b);

/// `dtype` is the type in which the kernel computes. Inputs and output may have other types.
struct BinarySpec {
  BinaryOp kind;
  DType dtype;
  static constexpr int kInPlaceInput = 0;
  const char* op() const { return BinaryName(kind); }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(kind, dtype);
};

/// Gradient of argument 0 (a) or 1 (b), in the broadcast shape. Inputs: dy, a, b. For the exponent
/// of a power: dy, a, a^b.
struct BinaryBackwardSpec {
  BinaryOp kind;
  int argument;
  DType dtype;
  static constexpr int kInPlaceInput = 0;
  const char* op() const { return BinaryBackwardName(kind); }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(kind, argument, dtype);
};

/// Inputs condition, x, y.
struct WhereSpec {
  DType dtype;
  const char* op() const { return "Where"; }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(dtype);
};

/// Inputs x, y; output y. Scalars: v[0] = alpha.
struct AxpySpec {
  DType dtype;
  const char* op() const { return "Axpy"; }
  void CheckCall(CallChecker& call) const;
  SINGA_FIELDS(dtype);
};

}  // namespace singa
