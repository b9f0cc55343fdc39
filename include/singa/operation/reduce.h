#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

namespace singa {

/// What is computed over the reduced axes.
enum class ReduceOp : int { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kCount };

/// Reduces over `axes`; empty means all. A number has axis 0, too. Sums of 16-bit and 32-bit floats
/// are accumulated pairwise or in float64, which keeps the rounding error small for long sums.
/// Without elements a sum, l1, l2 or sum of squares is 0, a product 1, a mean NaN; min and max
/// raise std::invalid_argument. As in NumPy, sums and products of integers and bools are int64, and
/// min and max return NaN if there is one. Mean and l2 raise TypeError unless x has a float type.
SINGA_API Tensor Reduce(ReduceOp op, const Tensor& x, const std::vector<int64_t>& axes = {},
                        bool keepdims = false);
/// Returns dx. Ties of min and max share the gradient equally.
SINGA_API Tensor ReduceBackward(ReduceOp op, const Tensor& dy, const Tensor& x, const Tensor& y,
                                const std::vector<int64_t>& axes, bool keepdims);
/// Sums a broadcast gradient to `shape`. Returns x itself if it has that shape.
SINGA_API Tensor SumTo(const Tensor& x, const Shape& shape);
/// int64 positions of the largest (ArgMax) or smallest (ArgMin) element along `axis`: of equal
/// elements the first, and the first NaN if there is one. An axis of length 0 raises
/// std::invalid_argument.
SINGA_API Tensor ArgMax(const Tensor& x, int64_t axis, bool keepdims = false);
/// The same for the smallest element.
SINGA_API Tensor ArgMin(const Tensor& x, int64_t axis, bool keepdims = false);
/// Top-k hits: the number of rows of `scores` (N, C) in which fewer than k scores exceed the
/// label's. `labels` (N) is int32 or int64. A row whose label has score NaN does not count. A label
/// outside [0, C) raises std::out_of_range.
SINGA_API int64_t CountTopK(const Tensor& scores, const Tensor& labels, int64_t k);

}  // namespace singa
