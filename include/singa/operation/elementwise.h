#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

// Elementwise operations. Inputs may be strided views; results are contiguous (or in the inputs'
// common opaque layout, where the function keeps zero at zero). Floats of 16 bits are computed in
// float32.

namespace singa {

/// y = f(x), with up to two constants a, b.
enum class UnaryOp : int {
  kAbs,
  kSign,
  kNegative,
  kReciprocal,
  kSquare,
  kSqrt,
  kExp,
  kLog,
  kErf,
  kCeil,
  kFloor,
  kRound,   ///< halves away from zero
  kRoundE,  ///< halves to even
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kSigmoid,
  kRelu,
  kSoftPlus,
  kSoftSign,
  kElu,          ///< x >= 0 ? x : a·(exp(x) − 1)
  kSelu,         ///< b·(x >= 0 ? x : a·(exp(x) − 1))
  kLeakyRelu,    ///< x >= 0 ? x : a·x
  kHardSigmoid,  ///< clip(a·x + b, 0, 1)
  kClip,         ///< into [a, b]
  kGelu,         ///< x·Φ(x), by erf
  kSilu,         ///< x·sigmoid(x)
  kAddScalar,    ///< x + a
  kMulScalar,    ///< a·x
  kScalarSub,    ///< a − x
  kScalarDiv,    ///< a / x
  kPowScalar,    ///< x^a
  kScalarPow,    ///< a^x
  kLogicalNot,   ///< x == 0, in x's type
  kCount
};

/// The result has x's type. Raises TypeError where the function needs a float and x is none, and
/// where x is an integer and a or b is not whole. Integers wrap around; a / 0 is 0.
SINGA_API Tensor Unary(UnaryOp op, const Tensor& x, double a = 0, double b = 0);
/// dx = dy · f'(x); may be dy itself. y is enough for kReciprocal, kSqrt, kExp, kTan, kTanh,
/// kSigmoid, kScalarPow, kRelu and (a >= 0) kLeakyRelu; neither x nor y is needed for steps (kSign,
/// kRound ...) and sums, and x is enough for all. The derivative at a kink is PyTorch's
/// (relu'(0) = 0, clip' = 1 on its bounds, sign' = round' = 0).
SINGA_API Tensor UnaryBackward(UnaryOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                               double a = 0, double b = 0);
/// Writes f(x) into `out` (same shape and type; may be x itself, or overlap it).
SINGA_API void UnaryInto(UnaryOp op, const Tensor& x, const Tensor& out, double a = 0,
                         double b = 0);

/// c = f(a, b) with NumPy's broadcasting; types are promoted. Comparisons and logic give 0 or 1 in
/// `Promote(a, b)` (SINGA's convention).
enum class BinaryOp : int {
  kAdd,
  kSub,
  kMul,
  kDiv,  ///< integers: truncated, 0 where b is 0
  kPow,
  kMin,
  kMax,
  kMod,  ///< remainder with the sign of b, as Python's; integers: 0 where b is 0
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kAnd,
  kOr,
  kXor,
  kPRelu,  ///< a >= 0 ? a : b·a
  kCount
};

SINGA_API Tensor Binary(BinaryOp op, const Tensor& a, const Tensor& b);
/// {da, db}, each in the shape and type of its argument; empty where not needed. May be dy itself.
/// `c` is the forward's result; only kPow reads it, and computes it where it is empty. Ties of min
/// and max share the gradient equally (PyTorch's rule). Comparisons have no gradient and raise
/// TypeError.
SINGA_API std::vector<Tensor> BinaryBackward(BinaryOp op, const Tensor& dy, const Tensor& a,
                                             const Tensor& b, const Tensor& c, bool need_a,
                                             bool need_b);
/// Writes f(a, b) into `out`, whose shape has to be the broadcast one; `out` may be a or b, or
/// overlap them. Its type may be narrower than the result's, but not an integer for a float
/// (TypeError).
SINGA_API void BinaryInto(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out);

/// condition ? x : y with broadcasting; condition is bool or any number (non-zero is true).
/// Types of x and y are promoted.
SINGA_API Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y);
/// {dx, dy}, each summed to its shape; empty where not needed.
SINGA_API std::vector<Tensor> WhereBackward(const Tensor& dy, const Tensor& condition,
                                            const Shape& x_shape, const Shape& y_shape, bool need_x,
                                            bool need_y);

/// y += alpha·x, in place, same shapes. Used to accumulate gradients.
SINGA_API void Axpy(double alpha, const Tensor& x, const Tensor& y);
/// The same with the only element of a tensor, which is read on the device.
SINGA_API void Axpy(const Tensor& alpha, const Tensor& x, const Tensor& y);

}  // namespace singa
