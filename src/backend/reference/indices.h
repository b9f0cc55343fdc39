#pragma once

// Index arguments of any numeric type.

#include <cmath>
#include <cstdint>

#include "core/tensor/dtype_switch.h"
#include "singa/core/plan.h"

namespace singa::reference {

/// Calls visit(i, value) for each value of a contiguous index tensor. Throws std::invalid_argument
/// for a float that is not an integer. Infinities become the limits of int64, which are out of
/// range for any axis.
template <class Visit>
void ForEachIndexValue(const char* op, const Tensor& indices, const Visit& visit) {
  const int64_t n = indices.size();
  SwitchAll(indices.data_type(), op, [&]<class T>() {
    const T* data = static_cast<const T*>(indices.raw_data());
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kIsFloatType<T>) {
        const auto value = static_cast<double>(static_cast<ComputeType<T>>(data[i]));
        if (value != std::floor(value)) [[unlikely]]
          ThrowNotWhole(op, value, i);
        visit(i, Convert<int64_t>(value));
      } else {
        visit(i, static_cast<int64_t>(data[i]));
      }
    }
  });
}

/// The value of index i as a position in [0, length); with `wrap`, negative ones count from the
/// end. Throws std::out_of_range.
inline int64_t PositionOf(const char* op, int64_t i, int64_t value, int64_t length, bool wrap) {
  const int64_t low = wrap ? -length : 0;
  if (value < low || value >= length) [[unlikely]]
    ThrowOutside(op, "index", value, "at position", i, low, length);
  return value < 0 ? value + length : value;
}

/// Writes the indices as positions in [0, length), as PositionOf does. Throws before the caller has
/// written anything.
inline void ReadPositions(const char* op, const Tensor& indices, int64_t length, bool wrap,
                          int64_t* positions) {
  ForEachIndexValue(op, indices, [&](int64_t i, int64_t value) {
    positions[i] = PositionOf(op, i, value, length, wrap);
  });
}

}  // namespace singa::reference
