#pragma once

#include <string>
#include <vector>

#include "singa/core/tensor.h"

// Operations that move elements without computing, for all element types. Views (transpose, slice,
// reshape, broadcast, squeeze, unsqueeze) are methods of Tensor. Indices are integers or floats
// with whole values; other values raise std::invalid_argument. Backward functions take float types
// only.

namespace singa {

/// Joins tensors along `axis`. Their types and other dimensions must be equal.
SINGA_API Tensor Concat(const std::vector<Tensor>& xs, int64_t axis);
/// Splits x along `axis` into consecutive pieces of lengths `parts`. Pieces are views; pieces of an
/// opaque tensor are copies if they can have such a layout, too.
SINGA_API std::vector<Tensor> Split(const Tensor& x, int64_t axis,
                                    const std::vector<int64_t>& parts);
/// x[starts:ends:steps] along `axes`, as in ONNX Slice; empty `axes` means the first ones. A view
/// or a copy, by Split's rule.
SINGA_API Tensor Slice(const Tensor& x, const std::vector<int64_t>& starts,
                       const std::vector<int64_t>& ends, const std::vector<int64_t>& axes = {},
                       const std::vector<int64_t>& steps = {});
/// A tensor of zeros with shape `x_shape` and dy in the place of the slice.
SINGA_API Tensor SliceBackward(const Tensor& dy, const Shape& x_shape,
                               const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
                               const std::vector<int64_t>& axes, const std::vector<int64_t>& steps);
/// x[..., indices, ...] along `axis` (ONNX Gather). Negative indices count from the end. An index
/// outside [-n, n), with n the length of the axis, raises std::out_of_range.
SINGA_API Tensor Gather(const Tensor& x, int64_t axis, const Tensor& indices);
/// Returns dx of shape `x_shape`: dy added up at the indices.
SINGA_API Tensor GatherBackward(const Tensor& dy, const Shape& x_shape, int64_t axis,
                                const Tensor& indices);
/// The elements of x with coordinate `axis` replaced by `indices`, which has the rank of x and is
/// no longer than it, but for `axis` (ONNX GatherElements). The result has the shape of `indices`.
SINGA_API Tensor GatherElements(const Tensor& x, const Tensor& indices, int64_t axis = 0);
/// Returns dx of shape `x_shape`: dy added up at the indices.
SINGA_API Tensor GatherElementsBackward(const Tensor& dy, const Shape& x_shape,
                                        const Tensor& indices, int64_t axis);
/// Slices of x, named by the last axis of `indices`, which holds their first coordinates behind the
/// first `batch_dims` axes (ONNX GatherND). x and `indices` share those axes. The result has the
/// shape of `indices` without its last axis, then that of a slice.
SINGA_API Tensor GatherND(const Tensor& x, const Tensor& indices, int64_t batch_dims = 0);
/// Returns dx of shape `x_shape`: dy added up at the indices.
SINGA_API Tensor GatherNDBackward(const Tensor& dy, const Shape& x_shape, const Tensor& indices,
                                  int64_t batch_dims = 0);

/// How updates are joined with the element at their place.
enum class ScatterReduction : int { kNone, kAdd, kMul, kMax, kMin };

/// A copy of x with `updates` joined to the elements that GatherElements would take (ONNX
/// ScatterElements). Updates of one element are joined in row-major order; without a reduction the
/// last one replaces the element. Floats are accumulated in float64. NaN wins as maximum and as
/// minimum. A reduction of bool raises TypeError.
SINGA_API Tensor ScatterElements(const Tensor& x, const Tensor& indices, const Tensor& updates,
                                 int64_t axis = 0,
                                 ScatterReduction reduction = ScatterReduction::kNone);
/// Returns {dx, dupdates}. Updates that were overwritten have gradient 0. The largest or smallest
/// of equal values share the gradient equally. Products, maxima and minima need x and `updates`,
/// maxima and minima also the result y.
SINGA_API std::vector<Tensor> ScatterElementsBackward(
    const Tensor& dy, const Tensor& indices, int64_t axis,
    ScatterReduction reduction = ScatterReduction::kNone, const Tensor& x = Tensor(),
    const Tensor& updates = Tensor(), const Tensor& y = Tensor());
/// The same for the slices that GatherND would take (ONNX ScatterND). `updates` has the shape of
/// GatherND's result.
SINGA_API Tensor ScatterND(const Tensor& x, const Tensor& indices, const Tensor& updates,
                           ScatterReduction reduction = ScatterReduction::kNone);
/// Returns {dx, dupdates}, as ScatterElementsBackward.
SINGA_API std::vector<Tensor> ScatterNDBackward(
    const Tensor& dy, const Tensor& indices, ScatterReduction reduction = ScatterReduction::kNone,
    const Tensor& x = Tensor(), const Tensor& updates = Tensor(), const Tensor& y = Tensor());
/// Repeats the whole tensor `repeats[i]` times along axis i (NumPy tile). The shorter of shape and
/// `repeats` is extended with ones in front.
SINGA_API Tensor Tile(const Tensor& x, const std::vector<int64_t>& repeats);
/// Returns dx of shape `x_shape`: the sum of the repetitions.
SINGA_API Tensor TileBackward(const Tensor& dy, const Shape& x_shape,
                              const std::vector<int64_t>& repeats);
/// Repeats each element along `axis` (NumPy repeat). `repeats` has one count, or one per position
/// of the axis. Axis -1000, the default, flattens x first.
SINGA_API Tensor Repeat(const Tensor& x, const std::vector<int64_t>& repeats, int64_t axis = -1000);
/// Pads x as ONNX Pad does. `mode` is "constant", "reflect", "edge" or "wrap". `pads` has the
/// number of elements to add before each axis, then those after each axis; negative ones crop.
/// "reflect" and "wrap" repeat the axis if a pad is longer.
SINGA_API Tensor Pad(const Tensor& x, const std::string& mode, const std::vector<int64_t>& pads,
                     double constant = 0);
/// Returns dx of shape `x_shape`: each element of dy is added to the one that it was copied from.
SINGA_API Tensor PadBackward(const Tensor& dy, const Shape& x_shape, const std::string& mode,
                             const std::vector<int64_t>& pads);
/// Moves elements by `shifts[i]` positions along axis `axes[i]`, and those beyond the end to the
/// beginning (NumPy roll). Shifts of one axis add up.
SINGA_API Tensor Roll(const Tensor& x, const std::vector<int64_t>& shifts,
                      const std::vector<int64_t>& axes);
/// Divides the channels, axis 1, into `groups` equal groups that take turns in y: y's channel
/// j · groups + i is x's channel i · (channels / groups) + j (torch.nn.ChannelShuffle). Its
/// inverse, and backward, is a shuffle with channels / groups groups (1 if there are no channels).
/// Raises std::invalid_argument if the groups do not divide the channels.
SINGA_API Tensor ChannelShuffle(const Tensor& x, int64_t groups);
/// Inserts an axis of length `depth`, with `on` at the position of the index and `off` elsewhere
/// (ONNX OneHot). Negative indices count from the end. Indices out of range give `off` everywhere.
SINGA_API Tensor OneHot(const Tensor& indices, int64_t depth, double off, double on, int64_t axis,
                        DataType dtype);
/// Returns the indices of the non-zero elements in row-major order, as int64 (rank, count).
SINGA_API Tensor NonZero(const Tensor& x);
/// Enlarges x by nearest neighbours; `scales` has an integer factor for each axis.
SINGA_API Tensor Upsample(const Tensor& x, const std::vector<int64_t>& scales);
/// Returns dx: the sum of dy over the elements that each element became.
SINGA_API Tensor UpsampleBackward(const Tensor& dy, const std::vector<int64_t>& scales);

}  // namespace singa
