#pragma once

// Elements in memory and values in registers: conversions and 16-byte accesses.

#include <cstdint>
#include <type_traits>

#include "backend/cuda/runtime/launch.h"
#include "core/tensor/dtype_switch.h"

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

namespace singa::cuda {

/// Convert, with the GPU's own instructions where it has them.
template <class To, class From>
__device__ __forceinline__ To Cast(From value) {
#if defined(__CUDA_ARCH__)
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Float16>) {
    return Cast<To>(__half2float(__ushort_as_half(value.bits)));
  } else if constexpr (std::is_same_v<To, Float16>) {
    To result;
    result.bits = __half_as_ushort(__float2half_rn(static_cast<float>(value)));
    return result;
  } else if constexpr (std::is_same_v<To, BFloat16> && !std::is_same_v<From, BFloat16>) {
    To result;
    result.bits = __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(value)));
    return result;
  } else {
    return Convert<To>(value);
  }
#else
  return Convert<To>(value);
#endif
}

/// The elements of one access.
template <class T, int kCount = 16 / sizeof(T)>
struct alignas(sizeof(T) * kCount) Vector {
  static constexpr int kLength = kCount;
  T v[kCount];
};

template <class T>
inline constexpr int kVectorLength = 16 / sizeof(T);

inline bool IsAligned(const void* p, size_t bytes = 16) {
  return reinterpret_cast<uintptr_t>(p) % bytes == 0;
}

#if defined(__CUDACC__)
/// The built-in type for accesses to V. Copying it is one access if the compiler knows the
/// address's alignment. Otherwise the compiler stores member by member, except with __stwb.
template <class V>
using Word = std::conditional_t<
    sizeof(V) == 1, unsigned char,
    std::conditional_t<sizeof(V) == 2, unsigned short,
                       std::conditional_t<sizeof(V) == 4, unsigned,
                                          std::conditional_t<sizeof(V) == 8, uint2, uint4>>>>;

template <class V>
__device__ __forceinline__ V LoadWords(const Word<V>* p) {
  constexpr int kWords = sizeof(V) / sizeof(Word<V>);
  static_assert(sizeof(V) % sizeof(Word<V>) == 0);
  Word<V> words[kWords];
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = p[i];
  V vector;
  memcpy(&vector, words, sizeof(V));
  return vector;
}
template <class V>
__device__ __forceinline__ void StoreWords(Word<V>* p, const V& vector) {
  constexpr int kWords = sizeof(V) / sizeof(Word<V>);
  Word<V> words[kWords];
  memcpy(words, &vector, sizeof(V));
#pragma unroll
  for (int i = 0; i < kWords; ++i) __stwb(p + i, words[i]);
}
#endif

template <class T, int kCount = kVectorLength<T>>
__device__ __forceinline__ Vector<T, kCount> LoadVector(const T* p) {
  using V = Vector<T, kCount>;
#if defined(__CUDACC__)
  return LoadWords<V>(reinterpret_cast<const Word<V>*>(p));
#else
  return *VectorAt<const V>(p);
#endif
}
template <class T, int kCount>
__device__ __forceinline__ void StoreVector(T* p, const Vector<T, kCount>& vector) {
  using V = Vector<T, kCount>;
#if defined(__CUDACC__)
  StoreWords(reinterpret_cast<Word<V>*>(p), vector);
#else
  *VectorAt<V>(p) = vector;
#endif
}

/// Calls f.operator()<T>() with the C++ type of `dtype`. All threads have the same `dtype`.
template <class F>
__device__ __forceinline__ decltype(auto) SwitchElement(DType dtype, const F& f) {
  switch (dtype) {
    case kFloat32:
      return f.template operator()<float>();
    case kFloat16:
      return f.template operator()<Float16>();
    case kBFloat16:
      return f.template operator()<BFloat16>();
    case kFloat64:
      return f.template operator()<double>();
    case kInt32:
      return f.template operator()<int32_t>();
    case kInt64:
      return f.template operator()<int64_t>();
    case kInt8:
      return f.template operator()<int8_t>();
    case kBool:
      return f.template operator()<bool>();
    default:
      return f.template operator()<uint8_t>();
  }
}

/// Element i of an array of type `dtype`.
template <class C>
__device__ __forceinline__ C LoadAs(const void* p, DType dtype, int64_t i) {
  return SwitchElement(dtype, [=]<class T>() { return Cast<C>(static_cast<const T*>(p)[i]); });
}
template <class C>
__device__ __forceinline__ void StoreAs(C value, void* p, DType dtype, int64_t i) {
  SwitchElement(dtype, [=]<class T>() { static_cast<T*>(p)[i] = Cast<T>(value); });
}

/// The first element of this thread, and the distance to its next one.
__device__ __forceinline__ int64_t FirstElement() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t ElementStep() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace singa::cuda
