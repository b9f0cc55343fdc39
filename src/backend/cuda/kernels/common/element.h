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
/// The built-in type for accesses of kBytes. Copying it is one access if the compiler knows the
/// address's alignment. Otherwise the compiler stores member by member, except with __stwb.
template <size_t kBytes>
struct WordOf {
  using type = uint4;
  static_assert(kBytes % sizeof(type) == 0);
};
template <>
struct WordOf<8> {
  using type = uint2;
};
template <>
struct WordOf<4> {
  using type = unsigned;
};
template <>
struct WordOf<2> {
  using type = unsigned short;
};
template <>
struct WordOf<1> {
  using type = unsigned char;
};
template <class V>
using Word = typename WordOf<sizeof(V)>::type;

template <class V>
__device__ __forceinline__ V LoadWords(const Word<V>* p) {
  constexpr int kWords = sizeof(V) / sizeof(Word<V>);
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

/// Element i of an array of type `dtype`. All threads have the same `dtype`.
template <class C>
__device__ __forceinline__ C LoadAs(const void* p, DType dtype, int64_t i) {
  switch (dtype) {
    case kFloat32:
      return Cast<C>(static_cast<const float*>(p)[i]);
    case kFloat16:
      return Cast<C>(static_cast<const Float16*>(p)[i]);
    case kBFloat16:
      return Cast<C>(static_cast<const BFloat16*>(p)[i]);
    case kFloat64:
      return Cast<C>(static_cast<const double*>(p)[i]);
    case kInt32:
      return Cast<C>(static_cast<const int32_t*>(p)[i]);
    case kInt64:
      return Cast<C>(static_cast<const int64_t*>(p)[i]);
    case kInt8:
      return Cast<C>(static_cast<const int8_t*>(p)[i]);
    case kBool:
      return Cast<C>(static_cast<const bool*>(p)[i]);
    default:
      return Cast<C>(static_cast<const uint8_t*>(p)[i]);
  }
}

template <class C>
__device__ __forceinline__ void StoreAs(C value, void* p, DType dtype, int64_t i) {
  switch (dtype) {
    case kFloat32:
      static_cast<float*>(p)[i] = Cast<float>(value);
      break;
    case kFloat16:
      static_cast<Float16*>(p)[i] = Cast<Float16>(value);
      break;
    case kBFloat16:
      static_cast<BFloat16*>(p)[i] = Cast<BFloat16>(value);
      break;
    case kFloat64:
      static_cast<double*>(p)[i] = Cast<double>(value);
      break;
    case kInt32:
      static_cast<int32_t*>(p)[i] = Cast<int32_t>(value);
      break;
    case kInt64:
      static_cast<int64_t*>(p)[i] = Cast<int64_t>(value);
      break;
    case kInt8:
      static_cast<int8_t*>(p)[i] = Cast<int8_t>(value);
      break;
    case kBool:
      static_cast<bool*>(p)[i] = Cast<bool>(value);
      break;
    default:
      static_cast<uint8_t*>(p)[i] = Cast<uint8_t>(value);
  }
}

/// The first element of this thread, and the distance to its next one.
__device__ __forceinline__ int64_t FirstElement() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t ElementStep() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

}  // namespace singa::cuda
