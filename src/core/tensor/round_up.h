#pragma once

#include <type_traits>

namespace singa {

/// The smallest multiple of `unit` that is at least n.
template <class N>
constexpr N RoundUp(N n, std::type_identity_t<N> unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace singa
