#pragma once

// Scalar arithmetic for every compute type. Floats follow IEEE 754. Integers wrap around and never
// trap.
//
// The backends share the formulas of this folder. They are constexpr, so nvcc compiles them for the
// GPU, too (--expt-relaxed-constexpr).

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace singa::arithmetic {

namespace detail {
template <class C>
constexpr bool kFloat = std::is_floating_point_v<C>;
// Overflow is undefined for signed integers, and wraps for unsigned ones.
template <class C>
using Bits = std::make_unsigned_t<std::conditional_t<kFloat<C>, int, C>>;
}  // namespace detail

template <class C>
constexpr C Add(C a, C b) {
  if constexpr (detail::kFloat<C>) return a + b;
  return static_cast<C>(static_cast<detail::Bits<C>>(a) + static_cast<detail::Bits<C>>(b));
}
template <class C>
constexpr C Sub(C a, C b) {
  if constexpr (detail::kFloat<C>) return a - b;
  return static_cast<C>(static_cast<detail::Bits<C>>(a) - static_cast<detail::Bits<C>>(b));
}
template <class C>
constexpr C Mul(C a, C b) {
  if constexpr (detail::kFloat<C>) return a * b;
  return static_cast<C>(static_cast<detail::Bits<C>>(a) * static_cast<detail::Bits<C>>(b));
}
template <class C>
constexpr C Negate(C a) {
  if constexpr (detail::kFloat<C>) return -a;
  return Sub(C(0), a);
}
/// Integers: truncated towards zero; 0 where b is 0.
template <class C>
constexpr C Div(C a, C b) {
  if constexpr (detail::kFloat<C>) {
    return a / b;
  } else {
    if (b == 0) return 0;
    return b == -1 ? Negate(a) : a / b;  // the least integer has no positive
  }
}
/// The largest whole number that is at most the exact quotient, as Python's // and PyTorch's
/// floor_divide. The rounded quotient of floats may already be the next whole number (1.0 / 0.1),
/// so it is computed without the remainder. Integers: 0 where b is 0.
template <class C>
constexpr C FloorDiv(C a, C b) {
  if constexpr (detail::kFloat<C>) {
    if (b == 0) return a / b;
    const C r = std::fmod(a, b);
    C q = (a - r) / b;
    if (r != 0 && (r < 0) != (b < 0)) q -= 1;
    if (q == 0) return std::copysign(C(0), a / b);
    const C whole = std::floor(q);
    return q - whole > C(0.5) ? whole + 1 : whole;
  } else {
    if (b == 0) return 0;
    const C q = Div(a, b), r = Sub(a, Mul(q, b));
    return r != 0 && (r < 0) != (b < 0) ? q - 1 : q;
  }
}
/// Remainder with the sign of a, as in C. Integers: 0 where b is 0.
template <class C>
constexpr C Fmod(C a, C b) {
  if constexpr (detail::kFloat<C>) {
    return std::fmod(a, b);
  } else {
    return b == 0 || b == -1 ? 0 : a % b;
  }
}
/// Remainder with the sign of b, as in Python and PyTorch. Integers: 0 where b is 0.
template <class C>
constexpr C Mod(C a, C b) {
  const C r = Fmod(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/// a·2^b and floor(a / 2^b) of integers, whatever b is.
template <class C>
constexpr C ShiftLeft(C a, C b) {
  if (b < 0 || b >= static_cast<C>(8 * sizeof(C))) return 0;
  return static_cast<C>(static_cast<detail::Bits<C>>(a) << b);
}
template <class C>
constexpr C ShiftRight(C a, C b) {
  if (b < 0 || b >= static_cast<C>(8 * sizeof(C))) return a < 0 ? -1 : 0;
  return a >> b;
}
/// The greatest common divisor of integers, which is not negative; 0 of zeros.
template <class C>
constexpr C Gcd(C a, C b) {
  while (b != 0) {
    const C rest = Fmod(a, b);
    a = b;
    b = rest;
  }
  return a < 0 ? Negate(a) : a;
}
/// The least common multiple of integers, which is not negative; 0 where one of them is.
template <class C>
constexpr C Lcm(C a, C b) {
  const C multiple = Mul(Div(a, Gcd(a, b)), b);
  return multiple < 0 ? Negate(multiple) : multiple;
}
/// Integers: by squaring, wrapping around; a negative exponent gives the truncated result.
template <class C>
constexpr C Pow(C a, C b) {
  if constexpr (detail::kFloat<C>) {
    return std::pow(a, b);
  } else {
    if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
    C result = 1;
    for (; b > 0; b >>= 1, a = Mul(a, a))
      if (b & 1) result = Mul(result, a);
    return result;
  }
}
/// NaN if either is.
template <class C>
constexpr C Min(C a, C b) {
  return a < b || a != a ? a : b;
}
template <class C>
constexpr C Max(C a, C b) {
  return a > b || a != a ? a : b;
}
template <class C>
constexpr C Abs(C a) {
  if constexpr (detail::kFloat<C>) return std::fabs(a);
  return a < 0 ? Negate(a) : a;
}
/// 0 for NaN, as in PyTorch.
template <class C>
constexpr C Sign(C a) {
  return static_cast<C>((a > C(0)) - (a < C(0)));
}

}  // namespace singa::arithmetic
