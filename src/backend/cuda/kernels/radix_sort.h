#pragma once

// A stable sort on the GPU, and groups of picks by the row that they name.

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kernels/common/positions.h"

namespace singa::cuda {

/// Memory for sorting `count` keys, each with a value. A sort leaves its results in `keys` and
/// `values`.
struct RadixSort {
  RadixSort(int64_t count, void* workspace);
  /// Bytes of workspace.
  static size_t Bytes(int64_t count);

  /// Sorts by the lowest `bits` bits of the keys, as unsigned numbers.
  void Queue(int bits, Stream stream);

  int64_t count;
  int64_t *keys, *values;

 private:
  int64_t *other_keys_, *other_values_, *counts_;
};

/// Group `row` is picks[begins[row]] to picks[begins[row + 1] − 1], in their original order.
struct PickGroups {
  const int64_t* picks;
  const int64_t* begins;
};

size_t GroupsWorkspace(int64_t count, int64_t rows);
/// Groups indices, which are numbers below `rows`; rows must not be 0.
PickGroups QueueGroups(const Indices& indices, int64_t rows, void* workspace, Stream stream);

}  // namespace singa::cuda
