#pragma once

// Sums of equal pieces in the order in which they are given.

#include <cstddef>
#include <cstdint>

#include "singa/core/dtype.h"

namespace singa::distributed {

/// to[i] = factor·from[0][i] + factor·from[1][i] + ..., added from left to right, for i in [0, n).
///
/// float and double: the bits are those of gradient accumulation, which multiplies the first
/// gradient by the factor and then calls Axpy(factor, gradient, sum). 16-bit floats are added in
/// float and rounded once. int32 and int64 wrap around; their factor must be 1. `to` may be one of
/// the `from`. Raises TypeError for other types.
void OrderedSum(DType dtype, double factor, const void* const* from, int64_t count, int64_t n,
                void* to);

/// A part of an ordered sum, for terms that are added in several places: adds the products to the
/// sum `before` of those that come first (null: there are none). It writes the sum of all so far to
/// `sums`, which may be `before`, or, if `to` is not null, that sum rounded to `dtype` to `to`.
/// Sums have the type in which OrderedSum adds, so the last part gives its bits.
void AddToSum(DType dtype, double factor, const void* const* from, int64_t count, int64_t n,
              const void* before, void* sums, void* to);

/// Bytes of an element of such sums: 4 for 16-bit floats, otherwise those of the type.
size_t SumBytes(DType dtype);

/// Whether OrderedSum has the type.
bool HasOrderedSum(DType dtype);

}  // namespace singa::distributed
