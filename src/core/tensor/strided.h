#pragma once

// Iteration over several strided arrays of the same shape.

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>

#include "core/device/inline.h"
#include "core/tensor/stored_size.h"
#include "singa/core/shape.h"
#include "singa/core/tensor.h"

namespace singa {

/// The common iteration space of K arrays, with as few dimensions as their strides allow. Axes of
/// length 1 are dropped, axes are sorted by the strides of array 0 (the one that is written), and
/// neighbouring axes are merged if they are one axis in all arrays. If all arrays are contiguous,
/// or transposed in the same way, one dimension remains.
template <int K>
class StridedSpace {
 public:
  using Offsets = std::array<int64_t, K>;

  StridedSpace(const Shape& shape, const std::array<Strides, K>& strides) {
    for (int axis = 0; axis < shape.rank(); ++axis) {
      size_ *= shape[axis];
      if (shape[axis] == 1) continue;
      Axis added{shape[axis], {}};
      for (int k = 0; k < K; ++k) added.stride[k] = strides[k][axis];
      int at = rank_++;
      for (; at > 0 && std::abs(axes_[at - 1].stride[0]) < std::abs(added.stride[0]); --at)
        axes_[at] = axes_[at - 1];
      axes_[at] = added;
    }
    int last = 0;
    for (int axis = 1; axis < rank_; ++axis) {
      if (Joins(axes_[last], axes_[axis])) {
        axes_[last].length *= axes_[axis].length;
        axes_[last].stride = axes_[axis].stride;
      } else {
        axes_[++last] = axes_[axis];
      }
    }
    rank_ = rank_ == 0 ? 1 : last + 1;  // a single element: the default axis of length 1
  }

  /// At least 1.
  int rank() const { return rank_; }
  /// Number of elements.
  int64_t size() const { return size_; }
  int64_t length(int axis) const { return axes_[axis].length; }
  int64_t stride(int k, int axis) const { return axes_[axis].stride[k]; }
  int64_t inner_length() const { return axes_[rank_ - 1].length; }
  int64_t inner_stride(int k) const { return axes_[rank_ - 1].stride[k]; }

  /// True if array k is dense in the order of iteration.
  bool dense(int k) const { return rank_ == 1 && (inner_stride(k) == 1 || size_ == 1); }

  /// Calls row(offsets, n) for runs along the innermost axis, which together cover the elements
  /// [begin, end) of the iteration space. `offsets` is the start of the run in each array, in
  /// elements.
  template <class Row>
  void Walk(int64_t begin, int64_t end, const Row& row) const {
    if (begin >= end) return;
    std::array<int64_t, kMaxRank> index;
    Offsets offset{};
    int64_t rest = begin;
    for (int axis = rank_ - 1; axis >= 0; --axis) {
      index[axis] = rest % axes_[axis].length;
      rest /= axes_[axis].length;
      for (int k = 0; k < K; ++k) offset[k] += index[axis] * axes_[axis].stride[k];
    }
    const int inner = rank_ - 1;
    while (true) {
      const int64_t n = std::min(axes_[inner].length - index[inner], end - begin);
      row(offset, n);
      begin += n;
      if (begin == end) return;
      // The run reached the end of the axis: go back to its start and carry.
      for (int k = 0; k < K; ++k) offset[k] -= index[inner] * axes_[inner].stride[k];
      index[inner] = 0;
      for (int axis = inner - 1; axis >= 0; --axis) {
        for (int k = 0; k < K; ++k) offset[k] += axes_[axis].stride[k];
        if (++index[axis] < axes_[axis].length) break;
        for (int k = 0; k < K; ++k) offset[k] -= axes_[axis].length * axes_[axis].stride[k];
        index[axis] = 0;
      }
    }
  }

 private:
  struct Axis {
    int64_t length = 1;
    Offsets stride{};
  };

  static bool Joins(const Axis& outer, const Axis& inner) {
    for (int k = 0; k < K; ++k)
      if (outer.stride[k] != inner.stride[k] * inner.length) return false;
    return true;
  }

  int rank_ = 0;
  int64_t size_ = 1;
  std::array<Axis, kMaxRank> axes_;
};

/// Of `out` (array 0) and inputs of its shape. Where `out` is opaque so are they, or one number
/// each: then it is the elements as they lie.
template <int K>
SINGA_INLINE StridedSpace<K> SpaceOf(std::span<const Tensor> in, const Tensor& out) {
  Shape shape = out.shape();
  std::array<Strides, K> strides;
  if (out.layout()) {
    shape = {StoredSize(out)};
    strides[0] = {1};
    for (int k = 1; k < K; ++k) strides[k] = {in[k - 1].layout() ? 1 : 0};
  } else {
    strides[0] = out.strides();
    for (int k = 1; k < K; ++k) strides[k] = in[k - 1].strides();
  }
  return StridedSpace<K>(shape, strides);
}

/// Axes [from, to) of a shape. Array 0 has contiguous strides, array 1 the `given` ones.
inline StridedSpace<2> AxesBetween(const Shape& shape, const Strides& given, int from, int to) {
  Shape part;
  Strides strides;
  for (int axis = from; axis < to; ++axis) {
    part.push_back(shape[axis]);
    strides.push_back(given[axis]);
  }
  return {part, {ContiguousStrides(part), strides}};
}

/// Smallest and largest offset of an element of (shape, strides), in elements from the first one;
/// {0, -1} if there are no elements.
inline std::array<int64_t, 2> ElementSpan(const Shape& shape, const Strides& strides) {
  std::array<int64_t, 2> span{0, 0};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 0) return {0, -1};
    span[strides[axis] < 0 ? 0 : 1] += (shape[axis] - 1) * strides[axis];
  }
  return span;
}

}  // namespace singa
