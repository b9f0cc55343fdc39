#pragma once

// What the collectives of several ranks compute.

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/cuda/runtime/runtime.h"
#include "singa/core/dtype.h"

namespace singa::cuda {

/// Bytes to copy.
struct Piece {
  const void* from;
  void* to;
  size_t bytes;
};
/// Copies all pieces. They and their addresses are multiples of `unit` bytes, the size of an
/// element.
void QueuePieces(std::span<const Piece> pieces, size_t unit, Stream stream);

/// to[i] = factor·terms[0][i] + factor·terms[1][i] + ..., for i in [0, n). It is
/// distributed::OrderedSum with each product rounded, as kernels that accumulate do; a CPU may fuse
/// a product with its addition. Term t begins at terms + t·step bytes. `to` may be one of the
/// terms.
void QueueOrderedSum(DType dtype, double factor, const void* terms, size_t step, int64_t count,
                     int64_t n, void* to, Stream stream);

/// Writes the numbers to the device.
void QueueNumbers(std::span<const int64_t> numbers, int64_t* to, Stream stream);

/// The running statistics of one batch norm, and where those of its batches are: `batches` of them
/// in each of `ranks` rows of `row` bytes, at mean and var in the first row, `step` bytes apart,
/// and their counts at `counts`, `count_step` numbers apart.
struct RunningUpdate {
  int64_t channels;
  double factor;
  int64_t ranks, batches;
  size_t row, step;
  const void *mean, *var;
  const int64_t* counts;
  int64_t count_step;
  void *running_mean, *running_var;
};
/// Updates by UpdateRunningStatistics: first the batches of the first row, in order. `dtype` is
/// float32 or float64.
void QueueRunningUpdate(DType dtype, const RunningUpdate& update, Stream stream);

}  // namespace singa::cuda
