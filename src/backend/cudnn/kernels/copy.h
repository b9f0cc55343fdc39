#pragma once

// Copies on the GPU, any strides and types.

#include "backend/cudnn/launch.h"
#include "core/strided.h"
#include "singa/core/tensor.h"

namespace singa::cuda {

/// dst[i] = src[i] for every element, as StridedCopy (core/copy.h); src and dst do not overlap.
void QueueCopy(const Tensor& src, const Tensor& dst, Stream stream);
/// The same for elements of `element` bytes, whatever they are: array 0 of the space begins at `to`
/// and array 1 at `from`.
void QueueMove(const void* from, void* to, const StridedSpace<2>& space, size_t element,
               Stream stream);
/// dst[i] = value, converted likewise.
void QueueFill(const Tensor& dst, double value, Stream stream);
/// Batches of matrices transposed: to[b][j][i] = from[b][i][j], elements of `element` bytes. What
/// moves images between row-major order (channels, pixels) and channels-last (pixels, channels).
void QueueTranspose(const void* from, void* to, int64_t batch, int64_t rows, int64_t columns,
                    size_t element, Stream stream);

}  // namespace singa::cuda
