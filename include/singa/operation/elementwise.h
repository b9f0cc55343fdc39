#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

// Elementwise operations. Inputs may be strided views. Results are contiguous, or in the inputs'
// common opaque layout if the function maps zero to zero. 16-bit floats are computed in float32.

namespace singa {

/// Functions y = f(x) with up to two constants a and b.
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
  kRound,   ///< ties away from zero
  kRoundE,  ///< ties to even
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
  kClip,         ///< limited to [a, b]
  kGelu,         ///< x·Φ(x), computed with erf
  kGeluTanh,     ///< x·(1 + tanh(√(2/π)·(x + 0.044715·x³))) / 2
  kSilu,         ///< x·sigmoid(x)
  kMish,         ///< x·tanh(log(1 + exp(x)))
  kHardSwish,    ///< x·clip(x + 3, 0, 6) / 6
  kAddScalar,    ///< x + a
  kMulScalar,    ///< a·x
  kScalarSub,    ///< a − x
  kScalarDiv,    ///< a / x
  kPowScalar,    ///< x^a
  kScalarPow,    ///< a^x
  kLogicalNot,   ///< x == 0, in x's type
  kHardTanh,     ///< limited to [a, b], like kClip, but flat at the bounds: ReLU6
  kTrunc,        ///< towards zero
  kLog2,
  kLog10,
  kExp2,        ///< 2^x
  kCelu,        ///< x >= 0 ? x : a·(exp(x / a) − 1)
  kLogSigmoid,  ///< log(sigmoid(x))
  kExpm1,       ///< e^x − 1, exact to rounding near 0
  kLog1p,       ///< log(1 + x), likewise
  kErfc,        ///< 1 − erf(x), exact to rounding for large x
  kErfInverse,  ///< the y with erf(y) = x
  kLogGamma,    ///< log |Γ(x)|
  kPolyGamma,   ///< the derivative of order a of ψ(x) = Γ'(x) / Γ(x), a a whole number >= 0
  kCount
};

/// The result has x's type. Integers wrap around; integer a / 0 is 0. Raises TypeError if the
/// function needs a float type and x has another one, if x has an integer type and a or b is not a
/// whole number, and for differences of bools; std::invalid_argument for an integer to a negative
/// power, and for an order of kPolyGamma that is not a whole number of 0 to 169.
SINGA_API Tensor Unary(UnaryOp op, const Tensor& x, double a = 0, double b = 0);
/// The tensor of forward that a derivative is computed from.
enum class Saved : int { kNothing, kX, kY, kXOrY };
/// That of a function. kXOrY is kX for kLeakyRelu with a < 0.
SINGA_API Saved NeededByBackward(UnaryOp op);
/// Returns dx = dy · f'(x), which may be dy itself. All functions accept x with an empty y. Those
/// for which NeededByBackward is kY or kXOrY also accept y with an empty x; those for which it is
/// kNothing need neither. The derivative at a kink is PyTorch's: relu'(0) = 0, clip' = 1 and
/// hardtanh' = 0 at the bounds, sign' = round' = 0.
SINGA_API Tensor UnaryBackward(UnaryOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                               double a = 0, double b = 0);
/// Writes f(x) to `out`, which has x's shape and type, and may be or overlap x.
SINGA_API void UnaryInto(UnaryOp op, const Tensor& x, const Tensor& out, double a = 0,
                         double b = 0);

/// Functions c = f(a, b) with NumPy's broadcasting. c has the type ResultType(a, b), also for
/// comparisons and logic, which give 0 or 1 (SINGA's convention). Integers wrap around.
///
/// On the CPU, a zero b of an integer kDiv, kMod, kFmod or kFloorDiv raises std::domain_error
/// (ZeroDivisionError in Python), and a negative b of an integer kPow std::invalid_argument.
/// Kernels of a GPU cannot raise: they give 0, and the truncated power.
enum class BinaryOp : int {
  kAdd,
  kSub,  ///< of bools: TypeError
  kMul,
  kDiv,  ///< integers: truncated
  kPow,
  kMin,
  kMax,
  kMod,  ///< Python's %: the remainder has the sign of b
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kAnd,
  kOr,
  kXor,
  kPRelu,      ///< a >= 0 ? a : b·a
  kFloorDiv,   ///< Python's //: the largest whole number that is at most the exact a / b
  kFmod,       ///< C's %: the remainder has the sign of a
  kHypot,      ///< √(a² + b²); this and the two below: of floats
  kCopySign,   ///< |a| with the sign of b, that of -0 included
  kLogAddExp,  ///< log(e^a + e^b)
  kBitAnd,     ///< this and those below: of integers and bools
  kBitOr,
  kBitXor,
  kShiftLeft,   ///< a·2^b, 0 for b < 0 and for b of a's bits or more
  kShiftRight,  ///< floor(a / 2^b); -1 or 0 by the sign of a for such b
  kGcd,         ///< the greatest common divisor, which is not negative; 0 of zeros
  kLcm,         ///< the least common multiple, which is not negative; 0 where a or b is
  kCount
};

/// Result type of arithmetic on two tensors: Promote, or PromoteNumber where one of them has axes
/// and the other has none.
SINGA_API DType ResultType(const Tensor& a, const Tensor& b);

/// op(a, b) elementwise with NumPy's broadcasting, in the type ResultType(a, b). Raises TypeError
/// for a type that the function does not take.
SINGA_API Tensor Binary(BinaryOp op, const Tensor& a, const Tensor& b);
/// A comparison or logical function as a bool tensor. Integers are compared in the wider type, also
/// where Binary would convert a tensor without axes to the other's type.
SINGA_API Tensor Compare(BinaryOp op, const Tensor& a, const Tensor& b);
/// Returns {da, db} with the shapes and types of a and b, empty where not needed. A result may be
/// dy itself. `c` is Binary's result; only kPow uses it, and recomputes it if it is empty. Ties of
/// min and max share the gradient equally, as in PyTorch. Comparisons, kFloorDiv and functions of
/// bits have no gradient and raise TypeError.
SINGA_API std::vector<Tensor> BinaryBackward(BinaryOp op, const Tensor& dy, const Tensor& a,
                                             const Tensor& b, const Tensor& c, bool need_a,
                                             bool need_b);
/// Writes f(a, b) to `out`, which has the broadcast shape and may be or overlap a or b. Its type
/// may be narrower than the result's; an integer type for a float result raises TypeError.
SINGA_API void BinaryInto(BinaryOp op, const Tensor& a, const Tensor& b, const Tensor& out);

/// condition ? x : y with broadcasting, in ResultType(x, y). `condition` has any type; non-zero is
/// true.
SINGA_API Tensor Where(const Tensor& condition, const Tensor& x, const Tensor& y);
/// Returns the gradients of x and y, summed to their shapes; empty where not needed.
SINGA_API std::vector<Tensor> WhereBackward(const Tensor& dy, const Tensor& condition,
                                            const Shape& x_shape, const Shape& y_shape, bool need_x,
                                            bool need_y);

/// y += alpha·x in place, for equal shapes. Accumulates gradients.
SINGA_API void Axpy(double alpha, const Tensor& x, const Tensor& y);
/// Likewise, with `alpha` a tensor of one element, which is read on the device.
SINGA_API void Axpy(const Tensor& alpha, const Tensor& x, const Tensor& y);

}  // namespace singa
