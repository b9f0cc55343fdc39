#pragma once

// Index arguments of any number type.

#include <cmath>
#include <cstdint>

#include "core/dtype_switch.h"
#include "singa/core/plan.h"

namespace singa::reference {

/// Calls visit(i, value) for the values of an index tensor (contiguous). Raises
/// std::invalid_argument for a float that is no whole number; infinities come out as the ends of
/// int64, which no axis contains.
template <class Visit>
void ForEachIndexValue(const char* op, const Tensor& indices, const Visit& visit) {
  const int64_t n = indices.size();
  SwitchAll(indices.data_type(), op, [&]<class T>() {
    const T* data = static_cast<const T*>(indices.raw_data());
    for (int64_t i = 0; i < n; ++i) {
      if constexpr (kIsFloatType<T>) {
        const auto value = static_cast<double>(static_cast<ComputeType<T>>(data[i]));
        Check(value == std::floor(value), op, "index ", value, " at position ", i,
              " is not a whole number");
        visit(i, Convert<int64_t>(value));
      } else {
        visit(i, static_cast<int64_t>(data[i]));
      }
    }
  });
}

/// Writes the indices as positions in [0, length); negative ones count from the end if `wrap`.
/// Raises std::out_of_range, before the caller has written anything.
inline void ReadPositions(const char* op, const Tensor& indices, int64_t length, bool wrap,
                          int64_t* positions) {
  const int64_t low = wrap ? -length : 0;
  ForEachIndexValue(op, indices, [&](int64_t i, int64_t value) {
    Check<std::out_of_range>(value >= low && value < length, op, "index ", value, " at position ",
                             i, " is outside [", low, ", ", length, ")");
    positions[i] = value < 0 ? value + length : value;
  });
}

}  // namespace singa::reference
