#pragma once

// Common to all elementwise kernels: y = f(x...) for one to four inputs of y's shape.
//
//   dense: all arrays are contiguous elements of type T. Each access has 16 bytes.
//   runs: the arrays consist of runs of whole vectors. An input may also be one element per run,
//   such as a bias of each channel or row, or a scalar.
//   strided: any strides (zero: broadcast) and types. Elements are converted to the compute type of
//   f. The type is tested for each element, but it is the same for all threads.
//
// A family of functions has a dense kernel for each function, and a kernel of runs for functions
// that are often broadcast. The strided kernel has ten times the code, so there is one for the
// whole family, which selects the function at run time.

#include <optional>
#include <span>
#include <stdexcept>
#include <utility>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "singa/core/plan.h"

namespace singa::cuda {

inline constexpr int kMapThreads = 256;

template <int N, class T>
struct DenseArrays {
  T* out;
  const T* in[N];
};

namespace detail {

template <class C, class F, class Load, int... k>
__device__ __forceinline__ C Apply(const F& f, const Load& load, std::integer_sequence<int, k...>) {
  return f(load(k)...);
}

}  // namespace detail

/// f(load(0), ..., load(N − 1))
template <int N, class C, class F, class Load>
__device__ __forceinline__ C Apply(const F& f, const Load& load) {
  return detail::Apply<C>(f, load, std::make_integer_sequence<int, N>());
}

template <int N, class C, class T, class F>
__global__ void __launch_bounds__(kMapThreads)
    MapDense(DenseArrays<N, T> arrays, int64_t size, F f) {
  constexpr int kLength = kVectorLength<T>;
  const int64_t vectors = size / kLength;
  for (int64_t i = FirstElement(); i < vectors; i += ElementStep()) {
    Vector<T> x[N];
#pragma unroll
    for (int k = 0; k < N; ++k) x[k] = LoadVector(arrays.in[k] + i * kLength);
    Vector<T> y;
#pragma unroll
    for (int j = 0; j < kLength; ++j)
      y.v[j] = Cast<T>(Apply<N, C>(f, [&](int k) { return Cast<C>(x[k].v[j]); }));
    StoreVector(arrays.out + i * kLength, y);
  }
  const int64_t last = vectors * kLength + FirstElement();
  if (last < size)
    arrays.out[last] = Cast<T>(Apply<N, C>(f, [&](int k) { return Cast<C>(arrays.in[k][last]); }));
}

template <int N, class T>
struct RunArrays {
  T* out;
  const T* in[N];
  bool one[N];  ///< whether the input is one element per run
};

/// `space` counts vectors; its strides are in elements.
template <int N, class C, class T, class F>
__global__ void __launch_bounds__(kMapThreads)
    MapRuns(RunArrays<N, T> arrays, Strided<N + 1, uint32_t> space, int64_t vectors, F f) {
  constexpr int kLength = kVectorLength<T>;
  for (int64_t i = FirstElement(); i < vectors; i += ElementStep()) {
    const auto offsets = space.Locate(static_cast<uint32_t>(i));
    Vector<T> x[N];
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const T* p = arrays.in[k] + offsets.at[k + 1];
      if (arrays.one[k]) {
        const T value = *p;
#pragma unroll
        for (int j = 0; j < kLength; ++j) x[k].v[j] = value;
      } else {
        x[k] = LoadVector(p);
      }
    }
    Vector<T> y;
#pragma unroll
    for (int j = 0; j < kLength; ++j)
      y.v[j] = Cast<T>(Apply<N, C>(f, [&](int k) { return Cast<C>(x[k].v[j]); }));
    StoreVector(arrays.out + offsets.at[0], y);
  }
}

template <int N>
struct AnyArrays {
  void* out;
  DType out_dtype;
  const void* in[N];
  DType in_dtype[N];
  bool condition;  ///< input 0 is read as 1 where it is not zero, else 0
};

inline constexpr int kMapElements = 4;  ///< per thread, so that several loads are in flight

template <int N, class C, class F>
__global__ void __launch_bounds__(kMapThreads)
    MapAny(AnyArrays<N> arrays, Strided<N + 1, uint32_t> space, int64_t size, F f) {
  const int64_t tile = int64_t{kMapThreads} * kMapElements;
  for (int64_t start = blockIdx.x * tile; start < size; start += gridDim.x * tile) {
    C y[kMapElements] = {};
    int64_t at[kMapElements] = {};
#pragma unroll
    for (int j = 0; j < kMapElements; ++j) {
      const int64_t i = start + j * kMapThreads + threadIdx.x;
      if (i >= size) continue;
      const auto offsets = space.Locate(static_cast<uint32_t>(i));
      at[j] = offsets.at[0];
      y[j] = Apply<N, C>(f, [&](int k) {
        if (k == 0 && arrays.condition)
          return static_cast<C>(LoadAs<bool>(arrays.in[0], arrays.in_dtype[0], offsets.at[1]));
        return LoadAs<C>(arrays.in[k], arrays.in_dtype[k], offsets.at[k + 1]);
      });
    }
#pragma unroll
    for (int j = 0; j < kMapElements; ++j)
      if (start + j * kMapThreads + threadIdx.x < size)
        StoreAs(y[j], arrays.out, arrays.out_dtype, at[j]);
  }
}

namespace detail {

/// Whether all arrays are contiguous elements of type T at addresses aligned for vectors.
template <int N, class T>
bool IsDense(const StridedSpace<N + 1>& space, std::span<const Tensor> in, const Tensor& out) {
  bool dense = space.dense(0) && out.data_type() == kDTypeOf<T> && IsAligned(out.raw_data());
  for (int k = 0; k < N; ++k)
    dense = dense && space.dense(k + 1) && in[k].data_type() == kDTypeOf<T> &&
            IsAligned(in[k].raw_data());
  return dense;
}

template <int N, class T, class F>
bool TryMapDense(const StridedSpace<N + 1>& space, std::span<const Tensor> in, const Tensor& out,
                 Stream stream, const F& f) {
  if (!IsDense<N, T>(space, in, out)) return false;
  DenseArrays<N, T> arrays;
  arrays.out = static_cast<T*>(out.raw_data());
  for (int k = 0; k < N; ++k) arrays.in[k] = static_cast<const T*>(in[k].raw_data());
  LaunchIndependent(MapDense<N, float, T, F>, GridFor(space.size(), kMapThreads, kVectorLength<T>),
                    kMapThreads, stream, arrays, space.size(), f);
  return true;
}

/// The space in vectors along its innermost axis; none if runs cannot be accessed in vectors.
template <int K>
std::optional<StridedSpace<K>> InVectors(const StridedSpace<K>& space, int64_t length) {
  const int inner = space.rank() - 1;
  if (space.inner_length() % length != 0) return {};
  Shape shape;
  std::array<Strides, K> strides;
  for (int axis = 0; axis <= inner; ++axis) {
    shape.push_back(axis == inner ? space.length(axis) / length : space.length(axis));
    for (int k = 0; k < K; ++k) {
      const int64_t stride = space.stride(k, axis);
      const bool one = k > 0 && space.inner_stride(k) == 0;
      if (axis < inner ? !one && stride % length != 0 : !one && stride != 1) return {};
      strides[static_cast<size_t>(k)].push_back(axis == inner ? stride * length : stride);
    }
  }
  return StridedSpace<K>(shape, strides);
}

template <int N, class T, class F>
bool TryMapRuns(const StridedSpace<N + 1>& space, std::span<const Tensor> in, const Tensor& out,
                Stream stream, const F& f) {
  const auto vectors = InVectors(space, kVectorLength<T>);
  if (!vectors || !FitsIndex32(vectors->size())) return false;
  RunArrays<N, T> arrays;
  arrays.out = static_cast<T*>(out.raw_data());
  bool fits = out.data_type() == kDTypeOf<T> && IsAligned(arrays.out);
  for (int k = 0; k < N; ++k) {
    arrays.in[k] = static_cast<const T*>(in[k].raw_data());
    arrays.one[k] = space.inner_stride(k + 1) == 0;
    fits = fits && in[k].data_type() == kDTypeOf<T> && (arrays.one[k] || IsAligned(arrays.in[k]));
  }
  if (!fits) return false;
  LaunchIndependent(MapRuns<N, float, T, F>, GridFor(vectors->size(), kMapThreads), kMapThreads,
                    stream, arrays, Strided<N + 1, uint32_t>(*vectors), vectors->size(), f);
  return true;
}

template <int N, class C, class F>
void MapStrided(std::span<const Tensor> in, const Tensor& out, Stream stream, bool condition,
                const F& f) {
  const StridedSpace<N + 1> space = SpaceOf<N + 1>(in, out);
  if (space.size() == 0) return;
  const auto at = [](const Tensor& t, int64_t element) {
    return static_cast<char*>(t.raw_data()) + element * static_cast<int64_t>(SizeOf(t.data_type()));
  };
  ForParts(space, kMostIndex32, [&](const StridedSpace<N + 1>& part, const auto& start) {
    AnyArrays<N> arrays;
    arrays.out = at(out, start[0]);
    arrays.out_dtype = out.data_type();
    arrays.condition = condition;
    for (int k = 0; k < N; ++k) {
      arrays.in[k] = at(in[k], start[k + 1]);
      arrays.in_dtype[k] = in[k].data_type();
    }
    LaunchIndependent(MapAny<N, C, F>, GridFor(part.size(), kMapThreads, kMapElements), kMapThreads,
                      stream, arrays, Strided<N + 1, uint32_t>(part), part.size(), f);
  });
}

}  // namespace detail

/// y = f(x...) if all arrays are contiguous floats of one type, up to 32 bits; f maps float to
/// float. Else does nothing and returns false. An input may be `out` itself.
template <int N, class F>
bool TryMapDense(std::span<const Tensor> in, const Tensor& out, Stream stream, const F& f) {
  const StridedSpace<N + 1> space = SpaceOf<N + 1>(in, out);
  return space.size() == 0 || detail::TryMapDense<N, float>(space, in, out, stream, f) ||
         detail::TryMapDense<N, BFloat16>(space, in, out, stream, f) ||
         detail::TryMapDense<N, Float16>(space, in, out, stream, f);
}

/// The same if all arrays consist of runs of whole vectors, or of one element per run. An input may
/// be `out` itself.
template <int N, class F>
bool TryMapRuns(std::span<const Tensor> in, const Tensor& out, Stream stream, const F& f) {
  const StridedSpace<N + 1> space = SpaceOf<N + 1>(in, out);
  return detail::TryMapRuns<N, float>(space, in, out, stream, f) ||
         detail::TryMapRuns<N, BFloat16>(space, in, out, stream, f) ||
         detail::TryMapRuns<N, Float16>(space, in, out, stream, f);
}

/// y = f(x...) for any tensors; f takes and returns C: float, double, int32_t or int64_t.
template <int N, class C, class F>
void MapStrided(std::span<const Tensor> in, const Tensor& out, Stream stream, const F& f) {
  detail::MapStrided<N, C>(in, out, stream, false, f);
}

/// The same, but input 0 is a condition: it is read as 1 where it is not zero, else as 0.
template <int N, class C, class F>
void MapWithCondition(std::span<const Tensor> in, const Tensor& out, Stream stream, const F& f) {
  detail::MapStrided<N, C>(in, out, stream, true, f);
}

/// The fastest of these that fits, for a function outside a family.
template <int N, class C, class F>
void Map(std::span<const Tensor> in, const Tensor& out, Stream stream, const F& f) {
  if constexpr (std::is_same_v<C, float>)
    if (TryMapDense<N>(in, out, stream, f) || TryMapRuns<N>(in, out, stream, f)) return;
  MapStrided<N, C>(in, out, stream, f);
}

}  // namespace singa::cuda
