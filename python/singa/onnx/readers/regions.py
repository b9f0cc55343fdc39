"""Readers of detection networks: features of regions, and the choice among boxes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd
from ...dtypes import wide_type
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tensor import Tensor
from ..values import bounded
from .movement import reshaped
from .registry import reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]


@reads("RoiAlign", 10, 16, 22, host=(1, 2))
def roi_align(node: Node) -> Compute:
    """X (N, C, H, W), boxes (R, 4) of x1, y1, x2, y2, image numbers (R) to (R, C, height, width).

    Mean or maximum of bilinear samples in each cell, He et al. 2017. As in ONNX, the maximum is
    over the weighted elements, not over their sums. The gradient reaches X. The boxes and the image
    numbers have none, as in torchvision.
    """
    height = node.attributes.get("output_height", 1)
    width = node.attributes.get("output_width", 1)
    samples = node.attributes.get("sampling_ratio", 0)
    scale = node.attributes.get("spatial_scale", 1.0)
    mode = node.attributes.get("mode", "avg")
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    positions = node.attributes.get("coordinate_transformation_mode", default)
    if mode not in ("avg", "max") or positions not in ("half_pixel", "output_half_pixel"):
        raise Refused(f"mode {mode!r} with coordinate_transformation_mode {positions!r}")
    if height < 1 or width < 1 or samples < 0:
        raise Refused(f"output {height} x {width} with sampling_ratio {samples}")

    def compute(run: Any, x: Tensor, rois: Array, images: Array) -> Tensor:
        shape = tuple(x.shape)
        what = f"[RoiAlign] node {node.name!r}: X {shape}, rois {rois.shape}, "
        what += f"batch_indices {images.shape}"
        count = len(rois) if rois.ndim else 0
        if len(shape) != 4 or rois.shape != (count, 4) or images.shape != (count,):
            raise ValueError(what)
        boxes = rois.astype(np.float64) * scale
        if not np.isfinite(boxes).all():
            raise ValueError(f"{what}: a box is not finite")
        if count and not (images.min() >= 0 and images.max() < shape[0]):
            raise IndexError(f"{what}: an image number is outside [0, {shape[0]})")
        if not math.prod(shape) and count:
            raise ValueError(f"{what}: X has no elements")
        result = (count, shape[1], height, width)
        kind = wide_type(x.dtype)
        if not math.prod(result):
            return same_type(run.tensor(np.zeros(result, np.float32)), x)
        rows, weights = _region_taps(
            node, boxes, shape[2:], (height, width), samples, positions == "half_pixel", mode
        )
        rows += images.astype(np.int64)[:, None, None] * (shape[2] * shape[3])
        _, cells, taps = rows.shape
        bounded(node, (count * cells, taps, shape[1]))
        last = autograd.transpose(autograd.cast(x, kind), (0, 2, 3, 1))
        last = reshaped(last, (shape[0] * shape[2] * shape[3], shape[1]))
        found = autograd.gather(last, 0, run.tensor(rows.reshape(-1)))
        found = reshaped(found, (count * cells, taps, shape[1]))
        scaled = found * run.tensor(weights.reshape(-1, taps, 1).astype(kind.name))
        reduce = autograd.reduce_sum if mode == "avg" else autograd.reduce_max
        pooled = reshaped(reduce(scaled, [1], 0), (count, height, width, shape[1]))
        return same_type(autograd.transpose(pooled, (0, 3, 1, 2)), x)

    return compute


def _region_taps(
    node: Node,
    boxes: Array,
    lengths: tuple[int, ...],
    cells: tuple[int, int],
    samples: int,
    half_pixel: bool,
    mode: str,
) -> tuple[Array, Array]:
    """Elements y * W + x and weights of each cell of each box: both (R, cells, taps).

    A box with fewer samples than others repeats its first tap, with weight 0 in a mean.
    """
    sides = []
    for low, high, length, size in ((1, 3, lengths[0], cells[0]), (0, 2, lengths[1], cells[1])):
        first, last = (boxes[:, i] - (0.5 if half_pixel else 0.0) for i in (low, high))
        extent = last - first
        if not half_pixel:
            extent = np.maximum(extent, 1.0)
        step = extent / size
        grid = np.full(len(boxes), samples) if samples else np.maximum(np.ceil(step), 0)
        bounded(node, (int(min(grid.max(), 2.0**40)), size, len(boxes)))
        sides.append(_side_taps(first, step, grid.astype(np.int64), length, size))
    (rows, row_weights, row_grid), (columns, column_weights, column_grid) = sides
    # Axes: box, row of cells, column of cells, row tap, column tap.
    wide = (len(boxes), *cells, rows.shape[2], columns.shape[2])
    bounded(node, wide)
    index = rows[:, :, None, :, None] * lengths[1] + columns[:, None, :, None, :]
    weight = row_weights[:, :, None, :, None] * column_weights[:, None, :, None, :]
    shape = (len(boxes), math.prod(cells), wide[3] * wide[4])
    index = np.broadcast_to(index, wide).reshape(shape).copy()
    weight = np.broadcast_to(weight, wide).reshape(shape).copy()
    if mode == "avg":
        weight /= np.maximum(row_grid * column_grid, 1)[:, None, None]
        return index, weight
    # Taps that a box does not have repeat its first one: they do not change the maximum.
    row_real = np.arange(wide[3])[None] < 2 * row_grid[:, None]
    column_real = np.arange(wide[4])[None] < 2 * column_grid[:, None]
    real = (row_real[:, :, None] & column_real[:, None, :]).reshape(len(boxes), 1, shape[2])
    return np.where(real, index, index[:, :, :1]), np.where(real, weight, weight[:, :, :1])


def _side_taps(
    first: Array, step: Array, grid: Array, length: int, size: int
) -> tuple[Array, Array, Array]:
    """Elements and weights along one axis: both (R, cells, 2 * most samples), and the samples."""
    most = max(int(grid.max()), 1)
    cell, sample = np.arange(size)[None, :, None], np.arange(most)[None, None, :]
    share = (sample + 0.5) / np.maximum(grid, 1)[:, None, None]
    place = first[:, None, None] + (cell + share) * step[:, None, None]
    inside = (place >= -1.0) & (place <= length) & (sample < grid[:, None, None])
    place = np.clip(place, 0.0, length - 1.0)
    low = np.floor(place).astype(np.int64)
    high = np.minimum(low + 1, length - 1)
    part = place - low
    index = np.stack([low, high], -1)
    weight = np.stack([1.0 - part, part], -1) * inside[..., None]
    index *= inside[..., None]  # outside: element 0, as in ONNX
    flat = (len(grid), size, 2 * most)
    return index.reshape(flat), weight.reshape(flat), grid
