#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

namespace singa {

enum class ReduceOp : int { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kCount };

/// Reduces over `axes` (empty: all). Sums of 16-bit and 32-bit floats are accumulated pairwise or
/// in float64, so that the error does not grow with the length. An empty reduction gives 0 (sum,
/// l1, l2), 1 (prod), NaN (mean), and raises std::invalid_argument for min and max. As in NumPy,
/// sums and products of integers and bools are int64, and NaN beats every number in min and max.
/// Mean and l2 raise TypeError unless x is of a float type.
SINGA_API Tensor Reduce(ReduceOp op, const Tensor& x, const std::vector<int64_t>& axes = {},
                        bool keepdims = false);
/// Gradient of Reduce for x. Ties of min and max share equally.
SINGA_API Tensor ReduceBackward(ReduceOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                                const std::vector<int64_t>& axes, bool keepdims);
/// Sums a broadcast gradient back to `shape`; x itself when it has that shape.
SINGA_API Tensor SumTo(const Tensor& x, const Shape& shape);
/// int64 positions of the largest (smallest) element along `axis`; the first of equals, and the
/// first NaN before every number. An axis of length 0 raises std::invalid_argument.
SINGA_API Tensor ArgMax(const Tensor& x, int64_t axis, bool keepdims = false);
SINGA_API Tensor ArgMin(const Tensor& x, int64_t axis, bool keepdims = false);
/// Of scores (N, C) and labels (N) int32/int64: how many rows have fewer than k scores above the
/// label's. A row whose label has the score NaN does not count. A label outside [0, C) raises
/// std::out_of_range.
SINGA_API int64_t CountTopK(const Tensor& scores, const Tensor& labels, int64_t k);

}  // namespace singa
