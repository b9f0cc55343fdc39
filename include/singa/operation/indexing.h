#pragma once

#include <string>
#include <vector>

#include "singa/core/tensor.h"

// Operations that move elements without computing. Any element type. Views (transpose, slice,
// reshape, broadcast, squeeze, unsqueeze) are methods of Tensor. Indices are integers, or floats
// with whole values (others raise std::invalid_argument). Backward functions take float types only.

namespace singa {

/// Joins along `axis`; types and other dimensions have to agree.
SINGA_API Tensor Concat(const std::vector<Tensor>& xs, int64_t axis);
/// Views of consecutive pieces whose lengths along `axis` are `parts`; of an opaque tensor copies,
/// where they can be had in such a layout too.
SINGA_API std::vector<Tensor> Split(const Tensor& x, int64_t axis,
                                    const std::vector<int64_t>& parts);
/// x[starts:ends:steps] over `axes` (empty: the first ones), as ONNX Slice; a view, or
/// a copy, as of Split.
SINGA_API Tensor Slice(const Tensor& x, const std::vector<int64_t>& starts,
                       const std::vector<int64_t>& ends, const std::vector<int64_t>& axes = {},
                       const std::vector<int64_t>& steps = {});
/// Zeros in `x_shape` with dy written where Slice read.
SINGA_API Tensor SliceBackward(const Tensor& dy, const Shape& x_shape,
                               const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
                               const std::vector<int64_t>& axes, const std::vector<int64_t>& steps);
/// x[..., indices, ...] along `axis` (ONNX Gather); negative indices count from the end; others
/// outside raise std::out_of_range.
SINGA_API Tensor Gather(const Tensor& x, int64_t axis, const Tensor& indices);
SINGA_API Tensor GatherBackward(const Tensor& dy, const Shape& x_shape, int64_t axis,
                                const Tensor& indices);
/// Copy of x with updates written at indices along `axis` (ONNX ScatterElements). Of several
/// updates of one element the last stays.
SINGA_API Tensor ScatterElements(const Tensor& x, const Tensor& indices, const Tensor& updates,
                                 int64_t axis = 0);
/// {dx, dupdates}; updates that were overwritten have no gradient.
SINGA_API std::vector<Tensor> ScatterElementsBackward(const Tensor& dy, const Tensor& indices,
                                                      int64_t axis);
/// Repeats the whole tensor `repeats[i]` times along axis i; the shorter of shape and repeats gets
/// ones in front (NumPy tile).
SINGA_API Tensor Tile(const Tensor& x, const std::vector<int64_t>& repeats);
SINGA_API Tensor TileBackward(const Tensor& dy, const Shape& x_shape,
                              const std::vector<int64_t>& repeats);
/// Repeats each element (NumPy repeat); one count, or one per element of `axis`; axis -1000:
/// flattened.
SINGA_API Tensor Repeat(const Tensor& x, const std::vector<int64_t>& repeats, int64_t axis = -1000);
/// mode "constant", "reflect" or "edge"; pads = (begin of each axis ..., end of each axis ...), as
/// ONNX Pad; negative pads crop. "reflect" goes back and forth as often as it takes.
SINGA_API Tensor Pad(const Tensor& x, const std::string& mode, const std::vector<int64_t>& pads,
                     double constant = 0);
SINGA_API Tensor PadBackward(const Tensor& dy, const Shape& x_shape, const std::string& mode,
                             const std::vector<int64_t>& pads);
/// `on` where the new axis' position equals the index, else `off` (ONNX OneHot): negative
/// indices count from the end, others outside are all `off`.
SINGA_API Tensor OneHot(const Tensor& indices, int64_t depth, double off, double on, int64_t axis,
                        DataType dtype);
/// Indices of non-zero elements, int64 (rank, count), row-major order.
SINGA_API Tensor NonZero(const Tensor& x);
/// Nearest-neighbour enlargement by whole factors, one per axis.
SINGA_API Tensor Upsample(const Tensor& x, const std::vector<int64_t>& scales);
SINGA_API Tensor UpsampleBackward(const Tensor& dy, const std::vector<int64_t>& scales);

}  // namespace singa
