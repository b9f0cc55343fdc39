#pragma once

// What is done with the elements of an array that is folded along some of its axes.
//
// A Fold<T> says that of elements of type T: values of type Acc, `Identity()`, `Load(x)` of an
// element, and `Join(a, b)`, which is associative. Sums of floats have a double Acc: the error of a
// float32 sum so stays at its last rounding, however long it is.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/dtype_switch.h"

namespace singa::formula {

// Integers are summed without a sign, where overflow wraps.
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

// NaN beats every number, as in NumPy. Not ||, so that nothing is a branch.
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

}  // namespace singa::formula
