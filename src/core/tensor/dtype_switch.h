#pragma once

// Dispatch from a run-time DType to a C++ type, and conversions between element types.
//
//   SwitchFloat(x.data_type(), "Softmax", [&]<class T>() { Kernel<T>(...); });

#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <utility>

#include "singa/core/dtype.h"
#include "singa/core/error.h"
#include "singa/core/half.h"

namespace singa {

/// BFloat16 and Float16.
template <class T>
inline constexpr bool kIs16BitFloat = std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>;

/// float, double, BFloat16 and Float16.
template <class T>
inline constexpr bool kIsFloatType = std::is_floating_point_v<T> || kIs16BitFloat<T>;

/// The type in which values stored as T are computed: float for 16-bit floats, int32 for narrower
/// integers and bool, else T.
template <class T>
using ComputeType = std::conditional_t<
    kIs16BitFloat<T>, float,
    std::conditional_t<std::is_integral_v<T> && sizeof(T) < sizeof(int32_t), int32_t, T>>;

/// The unsigned type of 1, 2, 4 or 8 bytes.
template <size_t bytes>
using WordOfSize = std::conditional_t<
    bytes == 1, uint8_t,
    std::conditional_t<bytes == 2, uint16_t, std::conditional_t<bytes == 4, uint32_t, uint64_t>>>;

namespace detail {

template <class T>
struct DTypeOfType;
#define SINGA_DTYPE_OF(type, dtype)       \
  template <>                             \
  struct DTypeOfType<type> {              \
    static constexpr DType value = dtype; \
  }
SINGA_DTYPE_OF(float, kFloat32);
SINGA_DTYPE_OF(double, kFloat64);
SINGA_DTYPE_OF(Float16, kFloat16);
SINGA_DTYPE_OF(BFloat16, kBFloat16);
SINGA_DTYPE_OF(int8_t, kInt8);
SINGA_DTYPE_OF(uint8_t, kUInt8);
SINGA_DTYPE_OF(int32_t, kInt32);
SINGA_DTYPE_OF(int64_t, kInt64);
SINGA_DTYPE_OF(bool, kBool);
#undef SINGA_DTYPE_OF

}  // namespace detail

template <class T>
inline constexpr DType kDTypeOf = detail::DTypeOfType<T>::value;

/// Converts between any two element types. Float to integer truncates and saturates: to int64's
/// range for int64, to int32's for all other integers, which narrower types then wrap as in C. NaN
/// becomes the lower end of the range. Conversion to bool is `!= 0`.
template <class To, class From>
constexpr To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIs16BitFloat<From>) {
    return Convert<To>(static_cast<float>(value));
  } else if constexpr (kIs16BitFloat<To>) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_same_v<To, int64_t>) {
    constexpr double kEnd = 0x1p63;
    const double v = value;
    if (!(v >= -kEnd)) return std::numeric_limits<int64_t>::min();
    if (v >= kEnd) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(v);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    double v = value;
    v = v > -0x1p31 ? v : -0x1p31;  // NaN too
    v = v < 0x1p31 - 1 ? v : 0x1p31 - 1;
    return static_cast<To>(static_cast<int32_t>(v));
  } else {
    return static_cast<To>(value);
  }
}

/// LoadStrided reads n elements at distances of `stride` and converts them to Value; StoreStrided
/// converts and writes them.
template <class Value, class T>
inline void LoadStrided(const T* source, int64_t stride, int64_t n, Value* out) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<Value>(source[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<Value>(source[i * stride]);
  }
}
template <class Value, class T>
inline void StoreStrided(const Value* values, int64_t n, T* out, int64_t stride) {
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) out[i] = Convert<T>(values[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) out[i * stride] = Convert<T>(values[i]);
  }
}

/// Calls f.operator()<T>() with the C++ type of a float dtype: float, double, BFloat16 or Float16.
/// Raises TypeError, naming `op`, for other types.
template <class F>
decltype(auto) SwitchFloat(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case kFloat32:
      return f.template operator()<float>();
    case kFloat64:
      return f.template operator()<double>();
    case kBFloat16:
      return f.template operator()<BFloat16>();
    case kFloat16:
      return f.template operator()<Float16>();
    default:
      throw TypeError(detail::Message(op, "needs a float type, got ", DTypeName(dtype)));
  }
}

/// Likewise for the types of class numbers and positions, int32 and int64.
template <class F>
decltype(auto) SwitchIndex(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case kInt32:
      return f.template operator()<int32_t>();
    case kInt64:
      return f.template operator()<int64_t>();
    default:
      throw TypeError(detail::Message(op, "needs int32 or int64, got ", DTypeName(dtype)));
  }
}

/// Likewise for the float types, int32 and int64, which can be summed and compared.
template <class F>
decltype(auto) SwitchNumber(DType dtype, const char* op, F&& f) {
  if (dtype == kInt32 || dtype == kInt64) return SwitchIndex(dtype, op, std::forward<F>(f));
  return SwitchFloat(dtype, op, std::forward<F>(f));
}

/// Likewise for all element types.
template <class F>
decltype(auto) SwitchAll(DType dtype, const char* op, F&& f) {
  switch (dtype) {
    case kInt8:
      return f.template operator()<int8_t>();
    case kUInt8:
      return f.template operator()<uint8_t>();
    case kBool:
      return f.template operator()<bool>();
    default:
      return SwitchNumber(dtype, op, std::forward<F>(f));
  }
}

/// Calls f.operator()<U>() with the unsigned type of 1, 2, 4 or 8 bytes, for kernels that only move
/// elements.
template <class F>
decltype(auto) SwitchSize(size_t bytes, F&& f) {
  switch (bytes) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    default:
      return f.template operator()<uint64_t>();
  }
}

/// Calls f.operator()<C>() with ComputeType: float, double, int32_t or int64_t. For kernels that
/// convert when they load and store, and so are compiled four times instead of nine.
template <class F>
decltype(auto) SwitchCompute(DType dtype, F&& f) {
  switch (dtype) {
    case kFloat64:
      return f.template operator()<double>();
    case kInt64:
      return f.template operator()<int64_t>();
    case kInt8:
    case kUInt8:
    case kInt32:
    case kBool:
      return f.template operator()<int32_t>();
    default:
      return f.template operator()<float>();
  }
}

}  // namespace singa
