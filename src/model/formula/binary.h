#pragma once

// c = f(a, b) and its two derivatives, one line each. Where speed matters `op` is a constant, so
// the compiler removes the switch.

#include <cmath>

#include "model/formula/arithmetic.h"
#include "singa/operation/elementwise.h"

namespace singa::formula {

template <class C>
[[gnu::always_inline]] constexpr C Binary(BinaryOp op, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the table reads as formulas
  constexpr C k0 = 0;
  // clang-format off
  switch (op) {
    case BinaryOp::kAdd: return Add(a, b);
    case BinaryOp::kSub: return Sub(a, b);
    case BinaryOp::kMul: return Mul(a, b);
    case BinaryOp::kDiv: return Div(a, b);
    case BinaryOp::kPow: return Pow(a, b);
    case BinaryOp::kMin: return Min(a, b);
    case BinaryOp::kMax: return Max(a, b);
    case BinaryOp::kMod: return Mod(a, b);
    case BinaryOp::kLess: return a < b ? C(1) : k0;
    case BinaryOp::kLessEqual: return a <= b ? C(1) : k0;
    case BinaryOp::kGreater: return a > b ? C(1) : k0;
    case BinaryOp::kGreaterEqual: return a >= b ? C(1) : k0;
    case BinaryOp::kEqual: return a == b ? C(1) : k0;
    case BinaryOp::kNotEqual: return a != b ? C(1) : k0;
    case BinaryOp::kAnd: return (a != k0) & (b != k0) ? C(1) : k0;
    case BinaryOp::kOr: return (a != k0) | (b != k0) ? C(1) : k0;
    case BinaryOp::kXor: return (a != k0) != (b != k0) ? C(1) : k0;
    case BinaryOp::kPRelu: return a >= k0 ? a : Mul(a, b);
    case BinaryOp::kFloorDiv: return FloorDiv(a, b);
    case BinaryOp::kCount: break;
  }
  // clang-format on
  return a;
}

/// The derivative for a where `first`, else for b.
template <class C>
[[gnu::always_inline]] constexpr C BinaryGradient(BinaryOp op, bool first, C dy, C a, C b) {
  constexpr C k0 = 0, kHalf = 0.5;
  // clang-format off
  switch (op) {
    case BinaryOp::kMul: return first ? dy * b : dy * a;
    case BinaryOp::kDiv: return first ? dy / b : -dy * ((a / b) / b);
    case BinaryOp::kPow:
      // 0·a^-1 and 0·log 0 are zero here. For the second, b holds c = a^b.
      if (first) return b == k0 ? k0 : dy * (b * std::pow(a, b - 1));
      return a == k0 && b <= C(1) ? k0 : dy * (b * std::log(a));
    case BinaryOp::kMin: return a == b ? dy * kHalf : (first ? a > b : b > a) ? k0 : dy;
    case BinaryOp::kMax: return a == b ? dy * kHalf : (first ? a < b : b < a) ? k0 : dy;
    case BinaryOp::kMod: return first ? dy : -dy * arithmetic::FloorDiv(a, b);
    case BinaryOp::kPRelu:
      if (first) return a > k0 ? dy : dy * b;
      return a > k0 ? k0 : dy * a;
    default: return dy;
  }
  // clang-format on
}

/// Whether `op` has a line above.
constexpr bool HasBinaryGradient(BinaryOp op) {
  switch (op) {
    case BinaryOp::kMul:
    case BinaryOp::kDiv:
    case BinaryOp::kPow:
    case BinaryOp::kMin:
    case BinaryOp::kMax:
    case BinaryOp::kMod:
    case BinaryOp::kPRelu:
      return true;
    default:
      return false;
  }
}

}  // namespace singa::formula
