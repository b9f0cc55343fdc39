#pragma once

#include <functional>

#include "singa/core/tensor.h"

namespace singa {

/// Whether the blocks of both have bytes in common. Blocks of an arena may.
inline bool SharesMemory(const Tensor& a, const Tensor& b) {
  if (a.empty() || b.empty()) return false;
  const auto begin = [](const Tensor& t) { return static_cast<const char*>(t.block()->data()); };
  const auto end = [&](const Tensor& t) { return begin(t) + t.block()->size(); };
  const std::less<const char*> before;
  return before(begin(a), end(b)) && before(begin(b), end(a));
}

}  // namespace singa
