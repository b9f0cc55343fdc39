#pragma once

// Copies on the GPU, for any strides and types.

#include "backend/cuda/runtime/runtime.h"
#include "core/tensor/strided.h"
#include "singa/core/tensor.h"

namespace singa::cuda {

/// dst[i] = src[i] for every element, like StridedCopy (core/tensor/copy.h). src and dst must not
/// overlap.
void QueueCopy(const Tensor& src, const Tensor& dst, Stream stream);
/// The same for elements of `element` bytes of any type. Array 0 of the space starts at `to`, array
/// 1 at `from`.
void QueueMove(const void* from, void* to, const StridedSpace<2>& space, size_t element,
               Stream stream);
/// dst[i] = value, converted in the same way.
void QueueFill(const Tensor& dst, double value, Stream stream);
/// Transposes batches of matrices: to[b][j][i] = from[b][i][j], for elements of `element` bytes.
/// Used to reorder images between row-major (channels, pixels) and channels-last (pixels,
/// channels).
void QueueTranspose(const void* from, void* to, int64_t batch, int64_t rows, int64_t columns,
                    size_t element, Stream stream);

}  // namespace singa::cuda
