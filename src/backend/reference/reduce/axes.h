#pragma once

// Divides the axes of a tensor into those that are kept and those that are folded.

#include <array>
#include <cstdint>

#include "core/tensor/strided.h"

namespace singa::reference {

/// Some axes of a tensor, with the strides of K arrays along them.
template <int K>
struct AxisGroup {
  Shape shape;
  std::array<Strides, K> strides;

  void Add(int64_t length, const std::array<int64_t, K>& stride) {
    shape.push_back(length);
    for (int k = 0; k < K; ++k) strides[k].push_back(stride[k]);
  }
  StridedSpace<K> space() const { return {shape, strides}; }
};

inline bool IsReduced(uint32_t axes, int axis) { return axes >> axis & 1; }

}  // namespace singa::reference
