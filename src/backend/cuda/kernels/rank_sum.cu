#include "backend/cuda/kernels/rank_sum.h"

#include <algorithm>
#include <array>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/geometry.h"
#include "backend/cuda/kernels/norm/running_statistics.h"
#include "core/tensor/dtype_switch.h"
#include "model/formula/arithmetic.h"

namespace singa::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 128;            // of a launch: 3 KiB of parameters
constexpr int64_t kBlockBytes = 16384;  // that a block copies

struct Pieces {
  int count = 0;
  uint32_t first_block[kPieces + 1];  // of each piece
  Piece piece[kPieces];
};

/// Copies elements [begin, end), kLength at a time.
template <class T, int kLength>
__device__ __forceinline__ void CopyElements(const T* from, T* to, int64_t begin, int64_t end) {
  for (int64_t i = begin + int64_t{threadIdx.x} * kLength; i < end;
       i += int64_t{kThreads} * kLength)
    StoreVector(to + i, LoadVector<T, kLength>(from + i));
}

template <class T>
__global__ void __launch_bounds__(kThreads) CopyPieces(SINGA_CONSTANT(Pieces) pieces) {
  int low = 0, high = pieces.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (pieces.first_block[middle] <= blockIdx.x ? low : high) = middle;
  }
  const Piece& piece = pieces.piece[low];
  constexpr int64_t kMost = kBlockBytes / sizeof(T);
  const int64_t size = static_cast<int64_t>(piece.bytes / sizeof(T));
  const int64_t begin = int64_t{blockIdx.x - pieces.first_block[low]} * kMost;
  const int64_t end = size < begin + kMost ? size : begin + kMost;
  const T* from = static_cast<const T*>(piece.from);
  T* to = static_cast<T*>(piece.to);
  constexpr int kLength = kVectorLength<T>;
  const auto addresses = reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to);
  const int64_t rest = addresses % 16 == 0 ? begin + (end - begin) / kLength * kLength : begin;
  CopyElements<T, kLength>(from, to, begin, rest);
  CopyElements<T, 1>(from, to, rest, end);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    AddInOrder(ComputeType<T> factor, const T* terms, int64_t step, int64_t count, int64_t n,
               T* to) {
  using C = ComputeType<T>;
  for (int64_t i = FirstElement(); i < n; i += ElementStep()) {
    C sum = arithmetic::Mul(factor, Cast<C>(terms[i]));
    for (int64_t t = 1; t < count; ++t)
      sum = arithmetic::Add(sum, arithmetic::Mul(factor, Cast<C>(terms[t * step + i])));
    to[i] = Cast<T>(sum);
  }
}

constexpr int kNumbers = 256;  // of a launch

using Numbers = std::array<int64_t, kNumbers>;

__global__ void __launch_bounds__(kThreads)
    WriteNumbers(SINGA_CONSTANT(Numbers) numbers, int64_t count, int64_t* to) {
  const int64_t i = FirstElement();
  if (i < count) to[i] = numbers[static_cast<size_t>(i)];
}

template <class S>
__global__ void __launch_bounds__(kThreads) UpdateInOrder(RunningUpdate u) {
  const int64_t c = FirstElement();
  if (c >= u.channels) return;
  for (int64_t rank = 0; rank < u.ranks; ++rank) {
    const int64_t row = rank * static_cast<int64_t>(u.row);
    for (int64_t batch = 0; batch < u.batches; ++batch) {
      const int64_t place = row + batch * static_cast<int64_t>(u.step);
      const auto at = [&](const void* first) {
        return reinterpret_cast<const S*>(static_cast<const char*>(first) + place)[c];
      };
      const int64_t count = reinterpret_cast<const int64_t*>(
          reinterpret_cast<const char*>(u.counts) + row)[batch * u.count_step];
      UpdateRunning(c, static_cast<double>(count), u.factor, at(u.mean), at(u.var),
                    static_cast<S*>(u.running_mean), static_cast<S*>(u.running_var));
    }
  }
}

}  // namespace

void QueuePieces(std::span<const Piece> pieces, size_t unit, Stream stream) {
  Pieces group;
  uint32_t blocks = 0;
  const auto flush = [&] {
    group.first_block[group.count] = blocks;
    SwitchSize(unit, [&]<class T>() {
      LaunchIndependent(CopyPieces<T>, dim3(blocks), kThreads, stream, group);
    });
    group.count = 0;
    blocks = 0;
  };
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) continue;
    if (group.count == kPieces) flush();
    group.first_block[group.count] = blocks;
    group.piece[group.count++] = piece;
    blocks += static_cast<uint32_t>((piece.bytes + kBlockBytes - 1) / kBlockBytes);
  }
  flush();
}

void QueueOrderedSum(DType dtype, double factor, const void* terms, size_t step, int64_t count,
                     int64_t n, void* to, Stream stream) {
  SwitchNumber(dtype, "all_reduce", [&]<class T>() {
    LaunchIndependent(AddInOrder<T>, GridFor(n, kThreads), kThreads, stream,
                      Convert<ComputeType<T>>(factor), static_cast<const T*>(terms),
                      static_cast<int64_t>(step / sizeof(T)), count, n, static_cast<T*>(to));
  });
}

void QueueNumbers(std::span<const int64_t> numbers, int64_t* to, Stream stream) {
  for (size_t begin = 0; begin < numbers.size(); begin += kNumbers) {
    const size_t count = std::min<size_t>(kNumbers, numbers.size() - begin);
    Numbers part{};
    std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(begin), count, part.begin());
    LaunchIndependent(WriteNumbers, dim3(1), kThreads, stream, part, static_cast<int64_t>(count),
                      to + begin);
  }
}

void QueueRunningUpdate(DType dtype, const RunningUpdate& update, Stream stream) {
  const dim3 grid = GridFor(update.channels, kThreads);
  if (dtype == kFloat64) {
    LaunchIndependent(UpdateInOrder<double>, grid, kThreads, stream, update);
  } else {
    LaunchIndependent(UpdateInOrder<float>, grid, kThreads, stream, update);
  }
}

}  // namespace singa::cuda
