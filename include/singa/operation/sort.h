#pragma once

#include <cstdint>
#include <vector>

#include "singa/core/tensor.h"

// Sorted selections and running sums along one axis.

namespace singa {

/// {values, indices}: the k largest elements of x along `axis`, largest first, or with `largest`
/// false the smallest, smallest first; and their positions along the axis (int64). Of equal
/// elements the earlier one comes first. NaN counts as larger than all numbers, as in NumPy. With k
/// the length of the axis this sorts. The gradient is GatherElementsBackward. Raises
/// std::invalid_argument unless 0 <= k <= length.
SINGA_API std::vector<Tensor> TopK(const Tensor& x, int64_t k, int64_t axis = -1,
                                   bool largest = true);
/// Sums of the elements up to each position along `axis` (ONNX CumSum): with the element itself, or
/// without it if `exclusive`; from the end of the axis if `reverse`. Sums of integers and bools are
/// int64, others have x's type and are accumulated in float64. The gradient is the same function
/// with `reverse` negated.
SINGA_API Tensor CumSum(const Tensor& x, int64_t axis, bool exclusive = false,
                        bool reverse = false);

}  // namespace singa
