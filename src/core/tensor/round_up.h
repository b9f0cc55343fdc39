#pragma once

#include <type_traits>

namespace singa {

/// How many parts of `size` hold n, for n that is not negative.
template <class N>
constexpr N CeilDivide(N n, std::type_identity_t<N> size) {
  return (n + size - 1) / size;
}

/// The smallest multiple of `unit` that is at least n.
template <class N>
constexpr N RoundUp(N n, std::type_identity_t<N> unit) {
  return CeilDivide(n, unit) * unit;
}

}  // namespace singa
