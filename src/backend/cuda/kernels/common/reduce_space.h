#pragma once

// Divides the axes of an array into those that are kept and those that are folded.

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "core/tensor/strided.h"

namespace singa::cuda {

struct ReduceSpace {
  /// Bit i of `axes`: axis i is folded.
  ReduceSpace(const Shape& shape, const Strides& strides, uint32_t axes)
      : kept(Kept(shape, strides, axes)),
        folded(Folded(shape, strides, axes)),
        results(kept.size()),
        length(folded.size()),
        // The group that contains neighbours in memory goes to neighbouring threads.
        by_runs(results == 1 ||
                (length >= 16 && Inner(shape, strides, axes) <= Inner(shape, strides, ~axes))),
        parts(Parts(results, length)) {}

  /// Bytes for the parts of all results, with up to 8 bytes each.
  static size_t PartialBytes(const Shape& shape, uint32_t axes) {
    int64_t results = 1, length = 1;
    for (int axis = 0; axis < shape.rank(); ++axis)
      (axes >> axis & 1 ? length : results) *= shape[axis];
    return static_cast<size_t>(results * Parts(results, length)) * 8;
  }

  StridedSpace<2> kept;  ///< array 0: the result, contiguous; array 1: x
  StridedSpace<1> folded;
  int64_t results, length;
  bool by_runs;
  int64_t parts;  ///< into which the folded range is divided

 private:
  struct Group {
    Shape lengths;
    Strides strides;
  };
  static Group Take(const Shape& shape, const Strides& strides, uint32_t axes) {
    Group group;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (!(axes >> axis & 1)) continue;
      group.lengths.push_back(shape[axis]);
      group.strides.push_back(strides[axis]);
    }
    return group;
  }
  static StridedSpace<2> Kept(const Shape& shape, const Strides& strides, uint32_t axes) {
    const Group group = Take(shape, strides, ~axes);
    return StridedSpace<2>(group.lengths, {ContiguousStrides(group.lengths), group.strides});
  }
  static StridedSpace<1> Folded(const Shape& shape, const Strides& strides, uint32_t axes) {
    const Group group = Take(shape, strides, axes);
    return StridedSpace<1>(group.lengths, {group.strides});
  }
  static int64_t Inner(const Shape& shape, const Strides& strides, uint32_t axes) {
    int64_t least = INT64_MAX;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (axes >> axis & 1 && shape[axis] > 1) least = std::min(least, std::abs(strides[axis]));
    return least;
  }
  static int64_t Parts(int64_t results, int64_t length) {
    constexpr int64_t kBlocks = 1024;      // enough for any present GPU
    constexpr int64_t kLeastLength = 128;  // of a part
    if (results <= 0) return 1;
    return std::clamp<int64_t>(kBlocks / ((results + 31) / 32), 1,
                               std::max<int64_t>(1, length / kLeastLength));
  }
};

}  // namespace singa::cuda
