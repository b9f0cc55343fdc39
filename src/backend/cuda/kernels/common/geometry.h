#pragma once

// Converts an element's number to its offsets in strided arrays.

#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "backend/cuda/runtime/launch.h"
#include "core/tensor/strided.h"
#include "singa/core/tensor.h"

namespace singa::cuda {

/// Division of n < 2^31 by a divisor that the host knows: a multiplication and a shift instead of
/// some twenty instructions (Granlund and Montgomery 1994).
class Divisor {
 public:
  Divisor() = default;
  /// Treats 0 as 1, since arrays without elements need no division.
  explicit Divisor(int64_t divisor) : divisor_(divisor > 0 ? static_cast<uint32_t>(divisor) : 1) {
    while ((uint64_t{1} << shift_) < divisor_) ++shift_;
    const uint64_t excess = (uint64_t{1} << shift_) - divisor_;
    multiplier_ = static_cast<uint32_t>((excess << 32) / divisor_ + 1);
  }
  __host__ __device__ uint32_t Divide(uint32_t n) const {
#if defined(__CUDA_ARCH__)
    return (__umulhi(n, multiplier_) + n) >> shift_;
#else
    return static_cast<uint32_t>((uint64_t{n} * multiplier_ >> 32) + n) >> shift_;
#endif
  }
  __host__ __device__ uint32_t value() const { return divisor_; }

 private:
  uint32_t divisor_ = 1;
  uint32_t multiplier_ = 1;
  uint32_t shift_ = 0;
};

/// The same interface for numbers of any size.
class WideDivisor {
 public:
  WideDivisor() = default;
  explicit WideDivisor(int64_t divisor) : divisor_(divisor > 0 ? divisor : 1) {}
  __host__ __device__ int64_t Divide(int64_t n) const { return n / divisor_; }
  __host__ __device__ int64_t value() const { return divisor_; }

 private:
  int64_t divisor_ = 1;
};

/// The divisor for an index type: uint32_t for fewer than 2^31 elements, else int64_t.
template <class Index>
using DivisorOf = std::conditional_t<sizeof(Index) == 4, Divisor, WideDivisor>;

inline constexpr int64_t kMostIndex32 = (int64_t{1} << 31) - 1;
inline bool FitsIndex32(int64_t size) { return size <= kMostIndex32; }

/// A StridedSpace over K arrays, for kernels.
template <int K, class Index>
struct Strided {
  int rank;
  DivisorOf<Index> length[kMaxRank];  // innermost first
  int64_t stride[kMaxRank][K];

  explicit Strided(const StridedSpace<K>& space) : rank(space.rank()) {
    for (int i = 0; i < rank; ++i) {
      const int axis = rank - 1 - i;
      length[i] = DivisorOf<Index>(space.length(axis));
      for (int k = 0; k < K; ++k) stride[i][k] = space.stride(k, axis);
    }
  }

  struct Offsets {
    int64_t at[K];
  };
  __device__ __forceinline__ Offsets Locate(Index i) const {
    Offsets offsets{};
    for (int axis = 0; axis < rank; ++axis) {
      const Index rest = axis + 1 < rank ? length[axis].Divide(i) : 0;
      const int64_t index = static_cast<int64_t>(i - rest * length[axis].value());
      for (int k = 0; k < K; ++k) offsets.at[k] += index * stride[axis][k];
      i = rest;
    }
    return offsets;
  }
};

/// Calls f(Strided<K, Index>) with a sufficient index type.
template <int K, class F>
void WithStrided(const StridedSpace<K>& space, const F& f) {
  if (FitsIndex32(space.size())) {
    f(Strided<K, uint32_t>(space), uint32_t{});
  } else {
    f(Strided<K, int64_t>(space), int64_t{});
  }
}

/// Calls f(part, start) for parts of at most `most` elements that cover the space. `start` holds a
/// part's offset in each array, in elements. Kernels that are compiled for many functions use it to
/// need 32-bit indices only, which halves the code to compile.
template <int K, class F>
void ForParts(const StridedSpace<K>& space, int64_t most, const F& f,
              const typename StridedSpace<K>::Offsets& start = {}) {
  if (space.size() <= most) return f(space, start);
  Shape shape;
  std::array<Strides, K> strides;
  int longest = 0;
  for (int axis = 0; axis < space.rank(); ++axis) {
    shape.push_back(space.length(axis));
    for (int k = 0; k < K; ++k) strides[k].push_back(space.stride(k, axis));
    if (shape[axis] > shape[longest]) longest = axis;
  }
  const int64_t length = shape[longest], half = length / 2;
  shape[longest] = half;
  ForParts(StridedSpace<K>(shape, strides), most, f, start);
  typename StridedSpace<K>::Offsets rest = start;
  for (int k = 0; k < K; ++k) rest[k] += half * strides[k][longest];
  shape[longest] = length - half;
  ForParts(StridedSpace<K>(shape, strides), most, f, rest);
}

}  // namespace singa::cuda
