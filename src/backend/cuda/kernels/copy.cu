#include "backend/cuda/kernels/copy.h"

#include <algorithm>
#include <optional>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;

template <class To, class Index>
__global__ void __launch_bounds__(kThreads)
    CopyStrided(const void* from, DType from_dtype, To* to, Strided<2, Index> space, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const auto offsets = space.Locate(static_cast<Index>(i));
    to[offsets.at[0]] = LoadAs<To>(from, from_dtype, offsets.at[1]);
  }
}

constexpr int kCastLength = 8;

/// Converts between contiguous float arrays of 16 and 32 bits.
template <class To, class From>
__global__ void __launch_bounds__(kThreads) CastVectors(const From* from, To* to, int64_t size) {
  const int64_t vectors = size / kCastLength;
  for (int64_t i = FirstElement(); i < vectors; i += ElementStep()) {
    const auto x = LoadVector<From, kCastLength>(from + i * kCastLength);
    Vector<To, kCastLength> y;
#pragma unroll
    for (int j = 0; j < kCastLength; ++j) y.v[j] = Cast<To>(x.v[j]);
    StoreVector(to + i * kCastLength, y);
  }
  const int64_t last = vectors * kCastLength + FirstElement();
  if (last < size) to[last] = Cast<To>(from[last]);
}

template <class From, class To>
bool TryCastVectors(const Tensor& src, const Tensor& dst, int64_t size, Stream stream) {
  if (src.data_type() != kDTypeOf<From> || dst.data_type() != kDTypeOf<To>) return false;
  const auto* from = static_cast<const From*>(src.raw_data());
  auto* to = static_cast<To*>(dst.raw_data());
  if (!IsAligned(from, sizeof(Vector<From, kCastLength>)) ||
      !IsAligned(to, sizeof(Vector<To, kCastLength>)))
    return false;
  LaunchIndependent(CastVectors<To, From>, GridFor(size, kThreads, kCastLength), kThreads, stream,
                    from, to, size);
  return true;
}

/// Copies elements of one type, by their size, or several at once.
template <class U, class Index>
__global__ void __launch_bounds__(kThreads)
    MoveStrided(const U* from, U* to, Strided<2, Index> space, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep()) {
    const auto offsets = space.Locate(static_cast<Index>(i));
    *VectorAt<U>(to + offsets.at[0]) = *VectorAt<const U>(from + offsets.at[1]);
  }
}

/// Copies contiguous arrays of one type.
__global__ void __launch_bounds__(kThreads)
    MoveVectors(const uint4* from, uint4* to, int64_t vectors) {
  for (int64_t i = FirstElement(); i < vectors; i += ElementStep())
    *VectorAt<uint4>(to + i) = *VectorAt<const uint4>(from + i);
}

template <class T, class Index>
__global__ void __launch_bounds__(kThreads)
    FillStrided(T* to, T value, Strided<1, Index> space, int64_t size) {
  for (int64_t i = FirstElement(); i < size; i += ElementStep())
    to[space.Locate(static_cast<Index>(i)).at[0]] = value;
}

constexpr int kTile = 32;
constexpr int kTileRows = 8;  // of threads; each copies four elements

/// Transposes a tile of 32 × 32 through shared memory, so that reads and writes are both coalesced.
/// Rows of the tile have one element of padding, so that a column's elements are in different
/// banks.
template <class U>
__global__ void __launch_bounds__(kTile* kTileRows)
    Transpose(const U* from, U* to, int64_t rows, int64_t columns, int64_t row_tiles,
              int64_t column_tiles) {
  SINGA_SHARED(U, kTile * (kTile + 1), tile);
  const int64_t batch = blockIdx.x / (row_tiles * column_tiles);
  const int64_t in_batch = blockIdx.x % (row_tiles * column_tiles);
  const int64_t row0 = in_batch / column_tiles * kTile, column0 = in_batch % column_tiles * kTile;
  const int x = threadIdx.x % kTile, y = threadIdx.x / kTile;
  from += batch * rows * columns;
  to += batch * rows * columns;
#pragma unroll
  for (int j = y; j < kTile; j += kTileRows)
    if (row0 + j < rows && column0 + x < columns)
      tile[j * (kTile + 1) + x] = from[(row0 + j) * columns + column0 + x];
  __syncthreads();
#pragma unroll
  for (int j = y; j < kTile; j += kTileRows)
    if (column0 + j < columns && row0 + x < rows)
      to[(column0 + j) * rows + row0 + x] = tile[x * (kTile + 1) + j];
}

/// For narrower matrices, most threads of a tile would be idle.
constexpr int64_t kNarrowest = 8;

struct Matrices {
  int64_t batch, rows, columns;
};

/// The transpose that a copy between contiguous arrays consists of; none if it does anything else.
std::optional<Matrices> TransposedBy(const StridedSpace<2>& space) {
  const int rank = space.rank();
  if (rank != 2 && rank != 3) return {};
  const Matrices m = {rank == 3 ? space.length(0) : 1, space.length(rank - 1),
                      space.length(rank - 2)};
  const auto strides = [&](int axis, int64_t to, int64_t from) {
    return space.stride(0, axis) == to && space.stride(1, axis) == from;
  };
  const bool transposes = strides(rank - 2, m.rows, 1) && strides(rank - 1, 1, m.columns) &&
                          (rank == 2 || strides(0, m.rows * m.columns, m.rows * m.columns));
  if (!transposes || std::min(m.rows, m.columns) < kNarrowest) return {};
  return m;
}

/// The same space with `ratio` elements as one; none unless runs and strides are multiples of it.
std::optional<StridedSpace<2>> Widened(const StridedSpace<2>& space, int64_t ratio) {
  Shape shape;
  std::array<Strides, 2> strides;
  for (int axis = 0; axis < space.rank(); ++axis) {
    const bool run = axis == space.rank() - 1;
    if (run && space.length(axis) % ratio != 0) return {};
    shape.push_back(run ? space.length(axis) / ratio : space.length(axis));
    for (int k = 0; k < 2; ++k) {
      const int64_t stride = space.stride(k, axis);
      if (run ? stride != 1 : stride % ratio != 0) return {};
      strides[static_cast<size_t>(k)].push_back(run ? 1 : stride / ratio);
    }
  }
  return StridedSpace<2>(shape, strides);
}

}  // namespace

void QueueCopy(const Tensor& src, const Tensor& dst, Stream stream) {
  const StridedSpace<2> space(dst.shape(), {dst.strides(), src.strides()});
  if (src.data_type() == dst.data_type())
    return QueueMove(src.raw_data(), dst.raw_data(), space, SizeOf(dst.data_type()), stream);
  const int64_t size = space.size();
  if (size == 0) return;
  if (space.dense(0) && space.dense(1) &&
      (TryCastVectors<float, BFloat16>(src, dst, size, stream) ||
       TryCastVectors<BFloat16, float>(src, dst, size, stream) ||
       TryCastVectors<float, Float16>(src, dst, size, stream) ||
       TryCastVectors<Float16, float>(src, dst, size, stream)))
    return;
  WithStrided(space, [&]<class Index>(const Strided<2, Index>& strided, Index) {
    SwitchAll(dst.data_type(), "copy", [&]<class To>() {
      LaunchIndependent(CopyStrided<To, Index>, GridFor(size, kThreads), kThreads, stream,
                        src.raw_data(), src.data_type(), static_cast<To*>(dst.raw_data()), strided,
                        size);
    });
  });
}

void QueueMove(const void* from, void* to, const StridedSpace<2>& given, size_t element,
               Stream stream) {
  if (given.size() == 0) return;
  if (const std::optional<Matrices> m = TransposedBy(given))
    return QueueTranspose(from, to, m->batch, m->rows, m->columns, element, stream);
  StridedSpace<2> space = given;
  size_t width = element;
  for (size_t bytes = 16; bytes > element && width == element; bytes /= 2) {
    if (!IsAligned(from, bytes) || !IsAligned(to, bytes)) continue;
    if (const auto widened = Widened(given, static_cast<int64_t>(bytes / element))) {
      space = *widened;
      width = bytes;
    }
  }
  const int64_t size = space.size();
  const dim3 grid = GridFor(size, kThreads);
  if (width == sizeof(uint4) && space.dense(0) && space.dense(1)) {
    LaunchIndependent(MoveVectors, grid, kThreads, stream, static_cast<const uint4*>(from),
                      static_cast<uint4*>(to), size);
    return;
  }
  WithStrided(space, [&]<class Index>(const Strided<2, Index>& strided, Index) {
    const auto move = [&]<class U>() {
      LaunchIndependent(MoveStrided<U, Index>, grid, kThreads, stream, static_cast<const U*>(from),
                        static_cast<U*>(to), strided, size);
    };
    if (width == sizeof(uint4)) return move.template operator()<uint4>();
    SwitchSize(width, move);
  });
}

void QueueFill(const Tensor& dst, double value, Stream stream) {
  const StridedSpace<1> space(dst.shape(), {dst.strides()});
  if (space.size() == 0) return;
  WithStrided(space, [&]<class Index>(const Strided<1, Index>& strided, Index) {
    SwitchAll(dst.data_type(), "fill", [&]<class T>() {
      LaunchIndependent(FillStrided<T, Index>, GridFor(space.size(), kThreads), kThreads, stream,
                        static_cast<T*>(dst.raw_data()), Convert<T>(value), strided, space.size());
    });
  });
}

void QueueTranspose(const void* from, void* to, int64_t batch, int64_t rows, int64_t columns,
                    size_t element, Stream stream) {
  const int64_t row_tiles = (rows + kTile - 1) / kTile;
  const int64_t column_tiles = (columns + kTile - 1) / kTile;
  const int64_t tiles = batch * row_tiles * column_tiles;
  SwitchSize(element, [&]<class U>() {
    Launch(Transpose<U>, static_cast<unsigned>(tiles), kTile * kTileRows, stream,
           static_cast<const U*>(from), static_cast<U*>(to), rows, columns, row_tiles,
           column_tiles);
  });
}

}  // namespace singa::cuda
