"""Readers of sampling at real-valued positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd, tensor
from ...dtypes import wide_type
from ...tensor import Tensor
from ..element_types import numpy_type
from ..errors import Refused
from ..graph import Node
from ..tensors import same_type
from ..values import bounded, numbers
from .movement import reshaped
from .registry import Compute, reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

#: Names of the modes, old and new.
_MODES = {
    "bilinear": "linear",
    "linear": "linear",
    "bicubic": "cubic",
    "cubic": "cubic",
    "nearest": "nearest",
}

#: For each element along an axis that takes part: its number, and its weight (None: 1).
Taps = list[tuple[Tensor, Tensor | None]]


@reads("GridSample", 16, 20, 22)
def grid_sample(node: Node) -> Compute:
    """Images (N, C, ...) at positions (N, ..., axes), where -1 and 1 are the ends of an axis, and
    the last axis comes first. Jaderberg et al. 2015; the gradient reaches the positions.

    Positions outside are clamped or reflected before the mode applies, as in ONNX Runtime.
    """
    align = bool(node.attributes.get("align_corners", 0))
    padding = node.attributes.get("padding_mode", "zeros")
    mode = _MODES.get(node.attributes.get("mode", "linear" if node.version >= 20 else "bilinear"))
    if mode is None or padding not in ("zeros", "border", "reflection"):
        raise Refused(f"mode {node.attributes.get('mode')!r} with padding_mode {padding!r}")

    def compute(run: Any, x: Tensor, grid: Tensor) -> Tensor:
        lengths, spots = x.shape[2:], grid.shape[1:-1]
        axes = len(lengths)
        if axes < 1 or len(grid.shape) != axes + 2 or grid.shape[-1] != axes:
            raise ValueError(f"[GridSample] grid {tuple(grid.shape)} for X {tuple(x.shape)}")
        count, channels, size = x.shape[0], x.shape[1], math.prod(spots)
        if grid.shape[0] != count or not math.prod(lengths):
            raise ValueError(f"[GridSample] grid {tuple(grid.shape)} for X {tuple(x.shape)}")
        kind = wide_type(x.dtype)
        places = reshaped(autograd.cast(grid, kind), (count, size, axes))
        wide = reshaped(autograd.cast(x, kind), (count, channels, math.prod(lengths)))
        taps = []
        for i, length in enumerate(lengths):
            at = axes - 1 - i
            place = reshaped(autograd.slice(places, [at], [at + 1], [2]), (count, size))
            taps.append(_taps(run, place, length, mode, padding, align))
        corners = itertools.product(*taps)
        total = _corner(wide, next(corners), lengths)
        for corner in corners:
            total = total + _corner(wide, corner, lengths)
        return same_type(reshaped(total, (count, channels, *spots)), x)

    return compute


@reads("AffineGrid", 20, host=(1,))
def affine_grid(node: Node) -> Compute:
    """theta (N, axes, axes + 1) to positions (N, ..., axes) for GridSample, in images of `size`.

    As in PyTorch, the only element of an axis lies in its middle. ONNX's definition of this
    operator gives NaN there, and fails for one image.
    """
    align = bool(node.attributes.get("align_corners", 0))

    def compute(run: Any, theta: Tensor, size: Array) -> Tensor:
        count, _, *lengths = bounded(node, numbers(size))
        axes = len(lengths)
        if axes not in (2, 3) or tuple(theta.shape) != (count, axes, axes + 1):
            raise ValueError(f"[AffineGrid] theta {tuple(theta.shape)} for size {numbers(size)}")

        def places() -> Array:
            ends = [1.0 - (0.0 if align and n > 1 else 1.0 / max(n, 1)) for n in lengths]
            sides = [np.linspace(-end, end, n) for end, n in zip(ends, lengths, strict=True)]
            grid = np.meshgrid(*sides, indexing="ij")[::-1]
            last = np.stack([*grid, np.ones_like(grid[0])], -1).reshape(-1, axes + 1)
            return last.astype(numpy_type(theta.dtype.name))

        base = run.tensor(run.made((node.name, *lengths, theta.dtype.name), places))
        moved = autograd.matmul(base, autograd.transpose(theta, (0, 2, 1)))
        return reshaped(moved, (count, *lengths, axes))

    return compute


def _corner(x: Tensor, corner: Sequence[Any], lengths: Sequence[int]) -> Tensor:
    """One element for each position, of x (N, C, all), times its weights: (N, C, positions)."""
    count, channels, _ = x.shape
    place, weight = corner[0]
    for (index, factor), length in zip(corner[1:], lengths[1:], strict=True):
        place = place * length + index
        weight = factor if weight is None else weight if factor is None else weight * factor
    size = place.shape[1]
    wide = autograd.expand(reshaped(place, (count, 1, size)), (count, channels, size))
    found = autograd.gather_elements(x, wide, 2)
    return found if weight is None else found * reshaped(weight, (count, 1, size))


def _taps(run: Any, place: Tensor, length: int, mode: str, padding: str, align: bool) -> Taps:
    """The elements of an axis that contribute at `place` (N, positions) in [-1, 1]."""
    low, high = (0.0, length - 1.0) if align else (-0.5, length - 0.5)
    place = (place + 1.0) * ((high - low) / 2) + low
    if mode == "nearest":
        place = autograd.rounde(place)
    if padding == "reflection":
        place = _reflected(run, place, low, high)
    elif padding == "border":
        inside = autograd.clip(place, 0.0, length - 1.0)
        if mode == "cubic":  # between the last element and the end of the axis it stays
            for limit, beyond in ((low, "<"), (high, ">")):
                number = run.number(limit, place)
                outside = place < number if beyond == "<" else place > number
                place = autograd.where(inside, place, outside)
        else:
            place = inside
    if mode == "nearest":
        return [_tap(run, place, None, length, padding, low, high)]
    base = autograd.floor(place).detach()
    t = place - base
    if mode == "linear":
        weights = {0: 1.0 - t, 1: t}
    else:
        weights = {
            -1: _cubic_far(t + 1.0),
            0: _cubic_near(t),
            1: _cubic_near(1.0 - t),
            2: _cubic_far(2.0 - t),
        }
    return [
        _tap(run, base + float(offset), weight, length, padding, low, high)
        for offset, weight in weights.items()
    ]


def _tap(
    run: Any,
    index: Tensor,
    weight: Tensor | None,
    length: int,
    padding: str,
    low: float,
    high: float,
) -> tuple[Tensor, Tensor | None]:
    """An element that may lie outside: another one instead, or with weight 0."""
    if padding == "reflection":
        index = _reflected(run, index, low, high)
    if padding == "zeros":
        zero = run.number(0, index)
        weight = zero + 1.0 if weight is None else weight
        wide = autograd.expand(weight, index.shape) if not weight.shape else weight
        wide = autograd.where(wide, zero, index >= zero)
        weight = autograd.where(wide, zero, index <= run.number(length - 1, index))
    inside = autograd.clip(index, 0.0, length - 1.0)
    return autograd.cast(inside, tensor.int64), weight


def _reflected(run: Any, place: Tensor, low: float, high: float) -> Tensor:
    """Positions reflected at both ends until they lie between them."""
    span = high - low
    if not span:
        return place * 0.0
    distance = autograd.abs(place - low)
    turns = autograd.floor(distance * (1.0 / span)).detach()
    rest = distance - turns * span
    odd = turns - autograd.floor(turns * 0.5) * 2.0
    return autograd.where(rest + low, high - rest, odd < run.number(0.5, odd))


# Keys 1981, with a = -3/4.


def _cubic_near(t: Tensor) -> Tensor:
    return (t * 1.25 - 2.25) * t * t + 1.0


def _cubic_far(t: Tensor) -> Tensor:
    return ((t * -0.75 + 3.75) * t - 6.0) * t + 3.0
