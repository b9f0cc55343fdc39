#pragma once

// Reductions of arrays along some of their axes.
//
// A Fold<T> reduces elements of type T to values of type Acc: `Identity()`, `Load(x)` of an
// element, and `Join(a, b)`, which is associative. Sums of floats have a double Acc, so that a
// float32 sum of any length has only its last rounding error.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/tensor/dtype_switch.h"

namespace singa::formula {

// Integers are summed as unsigned ones, whose overflow wraps.
template <class T>
using SumType = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;

template <class T>
constexpr SumType<T> AsSum(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(x));
  } else if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return static_cast<double>(static_cast<float>(x));
  }
}

template <class T>
struct SumFold {
  using Acc = SumType<T>;
  static constexpr Acc Identity() { return 0; }
  static constexpr Acc Load(T x) { return AsSum(x); }
  static constexpr Acc Join(Acc a, Acc b) { return a + b; }
};

template <class T>
struct AbsSumFold : SumFold<T> {
  using Acc = SumType<T>;
  static constexpr Acc Load(T x) {
    if constexpr (std::is_integral_v<T>) {
      return x < 0 ? 0 - AsSum(x) : AsSum(x);
    } else {
      return std::fabs(AsSum(x));
    }
  }
};

template <class T>
struct SquareSumFold : SumFold<T> {
  using Acc = SumType<T>;
  static constexpr Acc Load(T x) { return AsSum(x) * AsSum(x); }
};

template <class T>
struct ProdFold {
  using Acc = SumType<T>;
  static constexpr Acc Identity() { return 1; }
  static constexpr Acc Load(T x) { return AsSum(x); }
  static constexpr Acc Join(Acc a, Acc b) { return a * b; }
};

// NaN wins over every number, as in NumPy. | instead of || avoids a branch.
template <class T>
struct MaxFold {
  using Acc = ComputeType<T>;
  static constexpr Acc Identity() {
    if constexpr (std::is_integral_v<Acc>) {
      return std::numeric_limits<Acc>::lowest();
    } else {
      return -std::numeric_limits<Acc>::infinity();
    }
  }
  static constexpr Acc Load(T x) { return static_cast<Acc>(x); }
  static constexpr bool Beats(Acc a, Acc b) { return a > b; }
  static constexpr Acc Join(Acc a, Acc b) { return (b > a) | (b != b) ? b : a; }
};

template <class T>
struct MinFold {
  using Acc = ComputeType<T>;
  static constexpr Acc Identity() {
    if constexpr (std::is_integral_v<Acc>) {
      return std::numeric_limits<Acc>::max();
    } else {
      return std::numeric_limits<Acc>::infinity();
    }
  }
  static constexpr Acc Load(T x) { return static_cast<Acc>(x); }
  static constexpr bool Beats(Acc a, Acc b) { return a < b; }
  static constexpr Acc Join(Acc a, Acc b) { return (b < a) | (b != b) ? b : a; }
};

/// The gradients of numbers that were joined to y, their product, maximum or minimum. The gradient
/// of a factor is the product of the others: with one zero, only that factor has one; with two,
/// none has. Equal maxima or minima share the gradient.
struct JoinedGradient {
  bool product;
  double dy;
  double y;            ///< not read for a product
  int64_t chosen = 0;  ///< zeros, or numbers equal to y
  double rest = 1;     ///< product of the other factors

  constexpr bool Chosen(double value) const {
    return product ? value == 0 : value == y || (y != y && value != value);
  }
  /// Each number has to be added before the first call of Of.
  constexpr void Add(double value) {
    if (Chosen(value)) {
      ++chosen;
    } else if (product) {
      rest *= value;
    }
  }
  constexpr double Of(double value) const {
    if (!product) return Chosen(value) ? dy / static_cast<double>(chosen) : 0;
    if (chosen == 0) return dy * rest / value;
    return chosen == 1 && value == 0 ? dy * rest : 0;
  }
};

}  // namespace singa::formula
