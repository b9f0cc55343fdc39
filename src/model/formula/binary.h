#pragma once

// Functions of two numbers: c = f(a, b) and its two derivatives, and what else is known of each.
// All that is said of a function is its row in binary.def; a function of BinaryOp without a row
// does not compile. Where speed matters `op` is a constant, so the compiler removes the switch.

#include <cmath>
#include <cstddef>
#include <iterator>
#include <type_traits>

#include "model/formula/arithmetic.h"
#include "model/formula/loop_kind.h"
#include "model/formula/unary.h"
#include "singa/operation/elementwise.h"

namespace singa::formula {

/// The integers b for which f(a, b) is a number.
enum class Divisor { kAny, kNotZero, kNotNegative };

/// What a gradient is computed from besides dy. kNothing: there is none. kDy and kMinusDy: it is
/// that, and has no kernel.
enum class GradientOf { kNothing, kDy, kMinusDy, kA, kB, kAB, kAC };

/// The types that a function is defined for. kBits: integers and bools.
enum class Operands { kNumbers, kFloats, kBits };

/// What is known of a function besides its formulas.
struct BinaryFacts {
  BinaryOp op;
  const char *name, *backward_name;
  bool is_truth;  ///< comparisons and logic, whose result is true or false
  Operands operands;
  LoopKind loop;
  Divisor divisor;
  GradientOf da, db;
};

namespace detail {

#define SINGA_FACTS(name, truth, operands, loop, divisor, da, db)                                  \
  {BinaryOp::k##name, #name,          #name "Backward", truth, Operands::operands, LoopKind::loop, \
   Divisor::divisor,  GradientOf::da, GradientOf::db},
#define SINGA_ARITHMETIC(name, loop, divisor, da, db, ...) \
  SINGA_FACTS(name, false, kNumbers, loop, divisor, da, db)
#define SINGA_FLOATS(name, loop, da, db, ...) SINGA_FACTS(name, false, kFloats, loop, kAny, da, db)
#define SINGA_BITS(name, value) SINGA_FACTS(name, false, kBits, kPlain, kAny, kNothing, kNothing)
#define SINGA_TRUTH(name, value) SINGA_FACTS(name, true, kNumbers, kPlain, kAny, kNothing, kNothing)
inline constexpr BinaryFacts kBinaryFacts[] = {
#include "model/formula/binary.def"
};
#undef SINGA_TRUTH
#undef SINGA_BITS
#undef SINGA_FLOATS
#undef SINGA_ARITHMETIC
#undef SINGA_FACTS

constexpr bool BinaryRowsFollowEnumeration() {
  for (size_t i = 0; i < std::size(kBinaryFacts); ++i)
    if (kBinaryFacts[i].op != static_cast<BinaryOp>(i)) return false;
  return std::size(kBinaryFacts) == static_cast<size_t>(BinaryOp::kCount);
}
static_assert(BinaryRowsFollowEnumeration());

}  // namespace detail

constexpr const BinaryFacts& FactsOf(BinaryOp op) {
  return detail::kBinaryFacts[static_cast<size_t>(op)];
}

/// Whether the gradient of an argument has a kernel. That of b has one where that of a has.
constexpr bool HasBinaryGradient(BinaryOp op) { return FactsOf(op).db >= GradientOf::kA; }

// A switch that lacks a function is an error. What comes behind it is not reached: public functions
// check that there is such a function, and that it takes the type.
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"

/// c = f(a, b). `Math` is as in Unary.
template <class Math = Library, class C>
[[gnu::always_inline]] constexpr C Binary(BinaryOp op, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the rows read as formulas
  constexpr C k0 = 0;
#define SINGA_ARITHMETIC(name, loop, divisor, reads_a, reads_b, value, da, db) \
  case BinaryOp::k##name:                                                      \
    return value;
#define SINGA_FLOATS(name, loop, reads_a, reads_b, value, da, db) \
  case BinaryOp::k##name:                                         \
    if constexpr (std::is_floating_point_v<C>) return value;      \
    break;
#define SINGA_BITS(name, value)                        \
  case BinaryOp::k##name:                              \
    if constexpr (std::is_integral_v<C>) return value; \
    break;
#define SINGA_TRUTH(name, value) \
  case BinaryOp::k##name:        \
    return value ? C(1) : k0;
  switch (op) {
#include "model/formula/binary.def"
    case BinaryOp::kCount:
      break;
  }
#undef SINGA_TRUTH
#undef SINGA_BITS
#undef SINGA_FLOATS
#undef SINGA_ARITHMETIC
  __builtin_unreachable();
}

/// The derivative for a where `first`, else for b.
template <class Math = Library, class C>
[[gnu::always_inline]] constexpr C BinaryGradient(BinaryOp op, bool first, C dy, C a, C b) {
  using namespace arithmetic;  // NOLINT(google-build-using-namespace): the rows read as formulas
  constexpr C k0 = 0, kHalf = 0.5;
#define SINGA_ARITHMETIC(name, loop, divisor, reads_a, reads_b, value, da, db) \
  case BinaryOp::k##name:                                                      \
    if (first) return da;                                                      \
    return db;
#define SINGA_FLOATS(name, loop, reads_a, reads_b, value, da, db) \
  SINGA_ARITHMETIC(name, loop, kAny, reads_a, reads_b, value, da, db)
#define SINGA_TRUTH(name, value) \
  case BinaryOp::k##name:        \
    return k0;
#define SINGA_BITS SINGA_TRUTH
  switch (op) {
#include "model/formula/binary.def"
    case BinaryOp::kCount:
      break;
  }
#undef SINGA_BITS
#undef SINGA_TRUTH
#undef SINGA_FLOATS
#undef SINGA_ARITHMETIC
  __builtin_unreachable();
}

#pragma GCC diagnostic pop

}  // namespace singa::formula
