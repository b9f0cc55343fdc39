#pragma once

// Functions of one number: y = f(x) and dx = dy · f'(x), and what else is known of each. All that
// is said of a function is its row in unary.def; a function of UnaryOp without a row does not
// compile. Where speed matters `op` is a constant, so the compiler removes the switch.

#include <cmath>
#include <cstddef>
#include <iterator>
#include <numbers>
#include <type_traits>

#include "model/formula/arithmetic.h"
#include "model/formula/loop_kind.h"
#include "model/formula/special.h"
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

/// x limited to [low, high].
template <class C>
[[gnu::always_inline]] constexpr C Clamped(C x, C low, C high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
template <class C>
[[gnu::always_inline]] constexpr bool IsInside(C x, C low, C high) {
  return x > low && x < high;
}
template <class C>
[[gnu::always_inline]] constexpr C Square(C x) {
  return x * x;
}

/// `inside` between low and high, `below` and `above` there and beyond.
template <class C>
[[gnu::always_inline]] constexpr C Piecewise(C x, C low, C high, C below, C inside, C above) {
  return x <= low ? below : x >= high ? above : inside;
}

/// `Math` in the rows: what the functions whose loops are kVector call. This one is the C library;
/// VectorMath is the other (vector_unary.h).
struct Library {
  template <class C>
  [[gnu::always_inline]] static constexpr C Exp(C x) {
    return std::exp(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Exp2(C x) {
    return std::exp2(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Expm1(C x) {
    return std::expm1(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Log(C x) {
    return std::log(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Log2(C x) {
    return std::log2(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Log10(C x) {
    return std::log10(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Log1p(C x) {
    return std::log1p(x);
  }
  /// Of integers, too.
  template <class C>
  [[gnu::always_inline]] static constexpr C Pow(C a, C b) {
    return arithmetic::Pow(a, b);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Sin(C x) {
    return std::sin(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Cos(C x) {
    return std::cos(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Tan(C x) {
    return std::tan(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Asin(C x) {
    return std::asin(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Acos(C x) {
    return std::acos(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Atan(C x) {
    return std::atan(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Sinh(C x) {
    return std::sinh(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Cosh(C x) {
    return std::cosh(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Asinh(C x) {
    return std::asinh(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Acosh(C x) {
    return std::acosh(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Atanh(C x) {
    return std::atanh(x);
  }
  /// `yes` or `no`, both of which VectorMath computes.
  template <class C>
  [[gnu::always_inline]] static constexpr C Select(bool condition, C yes, C no) {
    return condition ? yes : no;
  }
  /// log(1 + exp(x)) without overflow.
  template <class C>
  [[gnu::always_inline]] static constexpr C SoftPlus(C x) {
    return (x < C(0) ? C(0) : x) + std::log1p(std::exp(-std::fabs(x)));
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Tanh(C x) {
    return std::tanh(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Erf(C x) {
    return std::erf(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C Erfc(C x) {
    return std::erfc(x);
  }
  template <class C>
  [[gnu::always_inline]] static constexpr C GeluSlope(C x) {
    return formula::GeluSlope(x, std::erfc(GeluArgument(x)), std::exp(C(-0.5) * x * x));
  }
};

/// How a function takes integers.
enum class Integers { kRefused, kUnchanged, kComputed };

/// What is known of a function besides its formulas.
struct UnaryFacts {
  UnaryOp op;
  const char *name, *backward_name;
  Integers integers;
  Saved saved;
  LoopKind loop, slope_loop;
};

namespace detail {

#define SINGA_FLOATS(...) SINGA_FACTS(Integers::kRefused, __VA_ARGS__)
#define SINGA_WHOLE(...) SINGA_FACTS(Integers::kUnchanged, __VA_ARGS__)
#define SINGA_NUMBERS(...) SINGA_FACTS(Integers::kComputed, __VA_ARGS__)
#define SINGA_FACTS(integers, name, saved, loop, slope_loop, ...)   \
  {UnaryOp::k##name, #name,          #name "Backward",    integers, \
   Saved::saved,     LoopKind::loop, LoopKind::slope_loop},
inline constexpr UnaryFacts kUnaryFacts[] = {
#include "model/formula/unary.def"
};
#undef SINGA_FACTS
#undef SINGA_NUMBERS
#undef SINGA_WHOLE
#undef SINGA_FLOATS

constexpr bool RowsFollowEnumeration() {
  for (size_t i = 0; i < std::size(kUnaryFacts); ++i)
    if (kUnaryFacts[i].op != static_cast<UnaryOp>(i)) return false;
  return std::size(kUnaryFacts) == static_cast<size_t>(UnaryOp::kCount);
}
static_assert(RowsFollowEnumeration());

}  // namespace detail

constexpr const UnaryFacts& FactsOf(UnaryOp op) {
  return detail::kUnaryFacts[static_cast<size_t>(op)];
}

/// Whether backward has a kernel. Other functions are flat, or linear with a known slope.
constexpr bool HasUnaryGradient(UnaryOp op) { return FactsOf(op).saved != Saved::kNothing; }

// A switch that lacks a function is an error. What comes behind it is not reached: public functions
// check that there is such a function, and that it takes x's type.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

namespace detail {

template <class Math, class C>
[[gnu::always_inline]] constexpr C FloatFunction(UnaryOp op, C x, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the rows read as formulas
  constexpr C k0 = 0, k1 = 1;
#define SINGA_FLOATS(name, saved, loop, slope_loop, value, gradient) \
  case UnaryOp::k##name:                                             \
    return value;
#define SINGA_WHOLE SINGA_FLOATS
#define SINGA_NUMBERS SINGA_FLOATS
  switch (op) {
#include "model/formula/unary.def"
    case UnaryOp::kCount:
      break;
  }
#undef SINGA_NUMBERS
#undef SINGA_WHOLE
#undef SINGA_FLOATS
  __builtin_unreachable();
}

template <class C>
[[gnu::always_inline]] constexpr C IntegerFunction(UnaryOp op, C x, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the rows read as formulas
  using Math = Library;
  constexpr C k0 = 0, k1 = 1;
#define SINGA_FLOATS(name, ...) \
  case UnaryOp::k##name:        \
    break;
#define SINGA_WHOLE(name, ...) \
  case UnaryOp::k##name:       \
    return x;
#define SINGA_NUMBERS(name, saved, loop, slope_loop, value, gradient) \
  case UnaryOp::k##name:                                              \
    return value;
  switch (op) {
#include "model/formula/unary.def"
    case UnaryOp::kCount:
      break;
  }
#undef SINGA_NUMBERS
#undef SINGA_WHOLE
#undef SINGA_FLOATS
  __builtin_unreachable();
}

}  // namespace detail

/// y = f(x; a, b), of an integer as its row says.
template <class Math = Library, class C>
[[gnu::always_inline]] constexpr C Unary(UnaryOp op, C x, C a, C b) {
  if constexpr (std::is_floating_point_v<C>) {
    return detail::FloatFunction<Math>(op, x, a, b);
  } else {
    return detail::IntegerFunction(op, x, a, b);
  }
}

/// dx from dy and x, or from dy and y where NeededByBackward is that. For kScalarPow b is log(a).
template <class Math = Library, class C>
[[gnu::always_inline]] constexpr C UnaryGradient(UnaryOp op, C dy, C xy, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the rows read as formulas
  constexpr C k0 = 0, k1 = 1, k2 = 2, kHalf = 0.5;
  constexpr C kInvRootPi = std::numbers::inv_sqrtpi_v<C>;
  constexpr C kLn2 = std::numbers::ln2_v<C>, kLn10 = std::numbers::ln10_v<C>;
  const C x = xy, y = xy;
#define SINGA_FLOATS(name, saved, loop, slope_loop, value, gradient) \
  case UnaryOp::k##name:                                             \
    return gradient;
#define SINGA_WHOLE SINGA_FLOATS
#define SINGA_NUMBERS SINGA_FLOATS
  switch (op) {
#include "model/formula/unary.def"
    case UnaryOp::kCount:
      break;
  }
#undef SINGA_NUMBERS
#undef SINGA_WHOLE
#undef SINGA_FLOATS
  __builtin_unreachable();
}

#pragma GCC diagnostic pop

}  // namespace singa::formula
