#pragma once

#include <cstdint>

#include "core/tensor/dtype_switch.h"
#include "model/formula/arithmetic.h"

namespace singa::test {

/// to[i] = factor·from[0][i] + factor·from[1][i] + ..., as the kernels add: OrderedSum, but each
/// product is rounded. On a CPU that can fuse it with the addition, OrderedSum may do so.
inline void SumOfProducts(DType dtype, double factor, const void* const* from, int64_t count,
                          int64_t n, void* to) {
  SwitchNumber(dtype, "SumOfProducts", [&]<class T>() {
    using C = ComputeType<T>;
    for (int64_t i = 0; i < n; ++i) {
      C sum{};
      for (int64_t r = 0; r < count; ++r) {
        // Volatile: this compiler must not fuse it, either.
        const volatile C product =
            arithmetic::Mul(Convert<C>(factor), Convert<C>(static_cast<const T*>(from[r])[i]));
        sum = r == 0 ? product : arithmetic::Add<C>(sum, product);
      }
      static_cast<T*>(to)[i] = Convert<T>(sum);
    }
  });
}

}  // namespace singa::test
