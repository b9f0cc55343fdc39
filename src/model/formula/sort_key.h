#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "core/tensor/dtype_switch.h"

namespace singa::formula {

/// Number of bits of SortKey<T>.
template <class T>
inline constexpr int kSortBits = 8 * static_cast<int>(sizeof(T));

/// An unsigned number with the order of x: equal for equal elements, and for all NaN the largest.
/// With `descending` the order is reversed.
template <class T>
constexpr uint64_t SortKey(T x, bool descending) {
  using Word = WordOfSize<sizeof(T)>;
  constexpr Word kSign = static_cast<Word>(Word{1} << (kSortBits<T> - 1));
  auto key = std::bit_cast<Word>(x);
  if constexpr (kIsFloatType<T>) {
    const auto value = static_cast<ComputeType<T>>(x);
    if (value != value) {
      key = static_cast<Word>(~Word{0});
    } else if (value == 0) {
      key = kSign;
    } else {
      key = static_cast<Word>(key & kSign ? ~key : key | kSign);
    }
  } else if constexpr (std::is_signed_v<T>) {
    key = static_cast<Word>(key ^ kSign);
  }
  return static_cast<Word>(descending ? ~key : key);
}

}  // namespace singa::formula
