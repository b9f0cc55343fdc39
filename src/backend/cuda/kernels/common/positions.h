#pragma once

// Index arguments of any numeric type.

#include <cmath>

#include "backend/cuda/kernels/common/element.h"
#include "backend/cuda/kernels/common/report.h"

namespace singa::cuda {

/// Reads index i as an integer. Returns false and reports a fault if it is not one.
__device__ inline bool ReadIndex(const void* indices, DType dtype, int64_t i, Fault* fault,
                                 int64_t low, int64_t high, int64_t* value) {
  if (dtype != kFloat32 && dtype != kFloat64 && dtype != kFloat16 && dtype != kBFloat16) {
    *value = LoadAs<int64_t>(indices, dtype, i);
    return true;
  }
  const auto real = LoadAs<double>(indices, dtype, i);
  *value = Convert<int64_t>(real);
  if (real == std::floor(real)) return true;
  Report(fault, FaultKind::kNotWhole, real, i, low, high);
  return false;
}

/// Index i as a position in [0, length); with `wrap`, negative ones count from the end. Returns 0
/// and reports a fault if it is out of range.
__device__ inline int64_t ReadPosition(const void* indices, DType dtype, int64_t i, int64_t length,
                                       bool wrap, Fault* fault) {
  const int64_t low = wrap ? -length : 0;
  int64_t value;
  if (!ReadIndex(indices, dtype, i, fault, low, length, &value)) return 0;
  if (value >= low && value < length) return value < 0 ? value + length : value;
  Report(fault, FaultKind::kOutside, static_cast<double>(value), i, low, length);
  return 0;
}

/// An index argument with positions along an axis.
struct Indices {
  const void* data;
  DType dtype;
  int64_t count;
  int64_t length;  ///< of the axis
  bool wrap;
  Fault* fault;
  __device__ int64_t At(int64_t i) const {
    return ReadPosition(data, dtype, i, length, wrap, fault);
  }
};

inline constexpr int kIndexThreads = 256;

/// Checks indices where nothing is read or written with them.
template <class Given>
__global__ void __launch_bounds__(kIndexThreads) LookAt(Given indices) {
  for (int64_t i = FirstElement(); i < indices.count; i += ElementStep()) indices.At(i);
}

inline void CheckIndices(const Indices& indices, Stream stream) {
  LaunchIndependent(LookAt<Indices>, GridFor(indices.count, kIndexThreads), kIndexThreads, stream,
                    indices);
}

}  // namespace singa::cuda
