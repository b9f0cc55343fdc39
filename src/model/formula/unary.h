#pragma once

// y = f(x) and dx = dy · f'(x), one line per function. Where speed matters `op` is a constant, so
// the compiler removes the switch.

#include <cmath>
#include <numbers>
#include <type_traits>

#include "model/formula/arithmetic.h"
#include "singa/operation/elementwise.h"

namespace singa::formula {

// Functions of x and of an exponential or erfc of x, which the caller computes: by the C library,
// or by a form that vectorises.

/// x·sigmoid(z), from exp(−z).
template <class C>
[[gnu::always_inline]] constexpr C TimesSigmoid(C x, C exponential) {
  return x / (C(1) + exponential);
}
/// Its derivative where z has the slope `dz`. Where the sigmoid is flat, a large x·dz does not
/// count.
template <class C>
[[gnu::always_inline]] constexpr C TimesSigmoidSlope(C x, C exponential, C dz) {
  const C s = C(1) / (C(1) + exponential);
  return s + x * (s * (C(1) - s)) * dz;
}

/// GELU x·Φ(x), from erfc of this argument, which keeps the digits that 1 + erf(x) loses below
/// zero.
template <class C>
[[gnu::always_inline]] constexpr C GeluArgument(C x) {
  return -x * (std::numbers::sqrt2_v<C> / 2);
}
template <class C>
[[gnu::always_inline]] constexpr C Gelu(C x, C erfc) {
  return x / 2 * erfc;
}
/// Its derivative Φ(x) + x·φ(x), from the same and e^(−x²/2).
template <class C>
[[gnu::always_inline]] constexpr C GeluSlope(C x, C erfc, C exponential) {
  constexpr C kInvRootTwoPi = std::numbers::inv_sqrtpi_v<C> * std::numbers::sqrt2_v<C> / 2;
  return erfc / 2 + x * (kInvRootTwoPi * exponential);
}

/// GELU by tanh is x·sigmoid(z), since (1 + tanh(z / 2)) / 2 = sigmoid(z).
template <class C>
[[gnu::always_inline]] constexpr C GeluTanhArgument(C x) {
  constexpr C kTwice = 2 * std::numbers::sqrt2_v<C> * std::numbers::inv_sqrtpi_v<C>;  // 2·√(2/π)
  return kTwice * (x + C(0.044715) * x * x * x);
}
template <class C>
[[gnu::always_inline]] constexpr C GeluTanhArgumentSlope(C x) {
  constexpr C kTwice = 2 * std::numbers::sqrt2_v<C> * std::numbers::inv_sqrtpi_v<C>;
  return kTwice * (C(1) + C(3 * 0.044715) * x * x);
}

/// Mish (Misra 2019) and its derivative, from e = exp(−|x|), which does not overflow:
///   x >= 0: tanh(log(1 + exp(x))) = (1 + 2e) / (1 + 2e + 2e²)
///   x < 0:                          (2e + e²) / (2 + 2e + e²)
template <class C>
[[gnu::always_inline]] constexpr C Mish(C x, C e) {
  const C numerator = x < C(0) ? e * (C(2) + e) : C(1) + C(2) * e;
  return x * (numerator / (numerator + (x < C(0) ? C(2) : C(2) * e * e)));
}
template <class C>
[[gnu::always_inline]] constexpr C MishSlope(C x, C e) {
  const C numerator = x < C(0) ? e * (C(2) + e) : C(1) + C(2) * e;
  const C denominator = numerator + (x < C(0) ? C(2) : C(2) * e * e);
  const C slope = C(4) * (C(1) + e) * (x < C(0) ? e : e * e) / (denominator * denominator);
  return numerator / denominator + x * slope;
}

namespace detail {

// Functions of floats only.
template <class C>
[[gnu::always_inline]] constexpr C FloatFunction(UnaryOp op, C x, C a, C b) {
  constexpr C k0 = 0, k1 = 1;
  // clang-format off
  switch (op) {
    case UnaryOp::kReciprocal: return k1 / x;
    case UnaryOp::kSqrt: return std::sqrt(x);
    case UnaryOp::kCeil: return std::ceil(x);
    case UnaryOp::kFloor: return std::floor(x);
    case UnaryOp::kRound: return std::round(x);
    case UnaryOp::kRoundE: return std::nearbyint(x);
    case UnaryOp::kExp: return std::exp(x);
    case UnaryOp::kLog: return std::log(x);
    case UnaryOp::kErf: return std::erf(x);
    case UnaryOp::kSin: return std::sin(x);
    case UnaryOp::kCos: return std::cos(x);
    case UnaryOp::kTan: return std::tan(x);
    case UnaryOp::kAsin: return std::asin(x);
    case UnaryOp::kAcos: return std::acos(x);
    case UnaryOp::kAtan: return std::atan(x);
    case UnaryOp::kSinh: return std::sinh(x);
    case UnaryOp::kCosh: return std::cosh(x);
    case UnaryOp::kTanh: return std::tanh(x);
    case UnaryOp::kAsinh: return std::asinh(x);
    case UnaryOp::kAcosh: return std::acosh(x);
    case UnaryOp::kAtanh: return std::atanh(x);
    case UnaryOp::kSigmoid: return k1 / (k1 + std::exp(-x));
    case UnaryOp::kGeluTanh: return TimesSigmoid(x, std::exp(-GeluTanhArgument(x)));
    case UnaryOp::kSilu: return TimesSigmoid(x, std::exp(-x));
    case UnaryOp::kMish: return Mish(x, std::exp(-std::fabs(x)));
    case UnaryOp::kHardSwish: {
      C gate = x + C(3);
      gate = gate < k0 ? k0 : gate;
      return x * ((gate > C(6) ? C(6) : gate) / C(6));
    }
    case UnaryOp::kGelu: return Gelu(x, std::erfc(GeluArgument(x)));
    // log(1 + exp(x)) without overflow.
    case UnaryOp::kSoftPlus: return arithmetic::Max(x, k0) + std::log1p(std::exp(-std::fabs(x)));
    case UnaryOp::kSoftSign: return x / (k1 + std::fabs(x));
    case UnaryOp::kElu: return x >= k0 ? x : a * std::expm1(x);
    case UnaryOp::kSelu: return b * (x >= k0 ? x : a * std::expm1(x));
    case UnaryOp::kLeakyRelu: return x >= k0 ? x : a * x;
    case UnaryOp::kHardSigmoid: x = a * x + b; x = x < k0 ? k0 : x; return x > k1 ? k1 : x;
    case UnaryOp::kPowScalar: return a == 2 ? x * x : std::pow(x, a);
    case UnaryOp::kScalarPow: return std::pow(a, x);
    default: return x;
  }
  // clang-format on
}

// Powers of integers, and functions that do not change integers.
template <class C>
[[gnu::always_inline]] constexpr C IntegerFunction(UnaryOp op, C x, C a) {
  switch (op) {
    case UnaryOp::kPowScalar:
      return arithmetic::Pow(x, a);
    case UnaryOp::kScalarPow:
      return arithmetic::Pow(a, x);
    default:
      return x;
  }
}

}  // namespace detail

template <class C>
[[gnu::always_inline]] constexpr C Unary(UnaryOp op, C x, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the table reads as formulas
  // clang-format off
  switch (op) {
    case UnaryOp::kAbs: return Abs(x);
    case UnaryOp::kSign: return Sign(x);
    case UnaryOp::kNegative: return Negate(x);
    case UnaryOp::kSquare: return Mul(x, x);
    case UnaryOp::kRelu: return x <= C(0) ? C(0) : x;
    case UnaryOp::kClip: case UnaryOp::kHardTanh: x = x < a ? a : x; return x > b ? b : x;
    case UnaryOp::kAddScalar: return Add(x, a);
    case UnaryOp::kMulScalar: return Mul(x, a);
    case UnaryOp::kScalarSub: return Sub(a, x);
    case UnaryOp::kScalarDiv: return Div(a, x);
    case UnaryOp::kLogicalNot: return x == C(0) ? C(1) : C(0);
    default: break;
  }
  // clang-format on
  if constexpr (std::is_floating_point_v<C>) {
    return detail::FloatFunction(op, x, a, b);
  } else {
    return detail::IntegerFunction(op, x, a);
  }
}

/// Whether `op` changes integers.
constexpr bool HasIntegerFunction(UnaryOp op) {
  switch (op) {
    case UnaryOp::kAbs:
    case UnaryOp::kSign:
    case UnaryOp::kNegative:
    case UnaryOp::kSquare:
    case UnaryOp::kRelu:
    case UnaryOp::kClip:
    case UnaryOp::kHardTanh:
    case UnaryOp::kAddScalar:
    case UnaryOp::kMulScalar:
    case UnaryOp::kScalarSub:
    case UnaryOp::kScalarDiv:
    case UnaryOp::kPowScalar:
    case UnaryOp::kScalarPow:
    case UnaryOp::kLogicalNot:
      return true;
    default:
      return false;
  }
}

/// dx from dy and x, or from dy and y in the lines that use y (NeededByBackward has to agree). At
/// kinks it follows PyTorch. For kScalarPow b is log(a).
template <class C>
[[gnu::always_inline]] constexpr C UnaryGradient(UnaryOp op, C dy, C xy, C a, C b) {
  constexpr C k0 = 0, k1 = 1, k2 = 2, kHalf = 0.5;
  constexpr C kInvRootPi = std::numbers::inv_sqrtpi_v<C>;
  const C x = xy, y = xy;
  // clang-format off
  switch (op) {
    case UnaryOp::kAbs: return dy * arithmetic::Sign(x);
    case UnaryOp::kReciprocal: return -dy * y * y;
    case UnaryOp::kSquare: return dy * (k2 * x);
    case UnaryOp::kSqrt: return dy / (k2 * y);
    case UnaryOp::kExp: return dy * y;
    case UnaryOp::kLog: return dy / x;
    case UnaryOp::kErf: return dy * (k2 * kInvRootPi * std::exp(-x * x));
    case UnaryOp::kSin: return dy * std::cos(x);
    case UnaryOp::kCos: return -dy * std::sin(x);
    case UnaryOp::kTan: return dy * (k1 + y * y);
    // A product instead of a difference of squares: near the ends 1 - x*x cancels.
    case UnaryOp::kAsin: return dy / std::sqrt((k1 - x) * (k1 + x));
    case UnaryOp::kAcos: return -dy / std::sqrt((k1 - x) * (k1 + x));
    case UnaryOp::kAtan: return dy / (k1 + x * x);
    case UnaryOp::kSinh: return dy * std::cosh(x);
    case UnaryOp::kCosh: return dy * std::sinh(x);
    case UnaryOp::kTanh: return dy * (k1 - y * y);
    case UnaryOp::kAsinh: return dy / std::hypot(x, k1);
    case UnaryOp::kAcosh: return dy / (std::sqrt(x - k1) * std::sqrt(x + k1));
    case UnaryOp::kAtanh: return dy / ((k1 - x) * (k1 + x));
    case UnaryOp::kSigmoid: return dy * (y * (k1 - y));
    case UnaryOp::kRelu: return xy <= k0 ? k0 : dy;
    case UnaryOp::kSoftPlus: return dy / (k1 + std::exp(-x));
    case UnaryOp::kSoftSign: { const C d = k1 + std::fabs(x); return dy / (d * d); }
    case UnaryOp::kElu: return x > k0 ? dy : dy * (a * std::exp(x));
    case UnaryOp::kSelu: return x > k0 ? dy * b : dy * (b * a * std::exp(x));
    case UnaryOp::kLeakyRelu: return xy > k0 ? dy : dy * a;
    case UnaryOp::kHardSigmoid: { const C h = a * x + b; return h > k0 && h < k1 ? dy * a : k0; }
    case UnaryOp::kClip: return x >= a && x <= b ? dy : k0;
    case UnaryOp::kHardTanh: return x > a && x < b ? dy : k0;
    case UnaryOp::kGelu:
      return dy * GeluSlope(x, std::erfc(GeluArgument(x)), std::exp(-kHalf * x * x));
    case UnaryOp::kGeluTanh:
      return dy * TimesSigmoidSlope(x, std::exp(-GeluTanhArgument(x)), GeluTanhArgumentSlope(x));
    case UnaryOp::kSilu: return dy * TimesSigmoidSlope(x, std::exp(-x), k1);
    case UnaryOp::kMish: return dy * MishSlope(x, std::exp(-std::fabs(x)));
    case UnaryOp::kHardSwish: {
      const C inside = dy * (x / C(3) + kHalf);
      return x <= C(-3) ? k0 : x >= C(3) ? dy : inside;
    }
    case UnaryOp::kScalarDiv: return -dy * ((a / x) / x);
    case UnaryOp::kPowScalar:
      if (a == 0) return k0;
      return a == 2 ? dy * (k2 * x) : dy * (a * std::pow(x, a - k1));
    case UnaryOp::kScalarPow:
      // 0^x is flat for x >= 0, where the formula would be 0·log 0.
      return a == 0 && y <= k1 ? k0 : dy * (y * b);
    default: return dy;
  }
  // clang-format on
}

/// Whether `op` has a line above.
constexpr bool HasUnaryGradient(UnaryOp op) {
  switch (op) {
    case UnaryOp::kSign:
    case UnaryOp::kNegative:
    case UnaryOp::kCeil:
    case UnaryOp::kFloor:
    case UnaryOp::kRound:
    case UnaryOp::kRoundE:
    case UnaryOp::kAddScalar:
    case UnaryOp::kMulScalar:
    case UnaryOp::kScalarSub:
    case UnaryOp::kLogicalNot:
    case UnaryOp::kCount:
      return false;
    default:
      return true;
  }
}

}  // namespace singa::formula
