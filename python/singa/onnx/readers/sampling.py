"""Readers of sampling at real-valued positions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd
from ...networks.element_types import numpy_type
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...ops.sampling import Taps, cubic_far, cubic_near, reflected, sampled, tap
from ...tensor import Tensor
from ..values import bounded, numbers
from .movement import reshaped
from .registry import reads

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
        axes = len(x.shape) - 2
        fits = axes >= 1 and len(grid.shape) == axes + 2 and grid.shape[-1] == axes
        if not fits or grid.shape[0] != x.shape[0] or not math.prod(x.shape[2:]):
            raise ValueError(f"[GridSample] grid {tuple(grid.shape)} for X {tuple(x.shape)}")
        return sampled(x, grid, lambda place, length: _taps(place, length, mode, padding, align))

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


def _taps(place: Tensor, length: int, mode: str, padding: str, align: bool) -> Taps:
    """The elements of an axis that contribute at `place` (N, positions) in [-1, 1]."""
    low, high = (0.0, length - 1.0) if align else (-0.5, length - 0.5)
    place = (place + 1.0) * ((high - low) / 2) + low
    if mode == "nearest":
        place = autograd.rounde(place)
    if padding == "reflection":
        place = reflected(place, low, high)
    elif padding == "border":
        inside = autograd.clip(place, 0.0, length - 1.0)
        if mode == "cubic":  # between the last element and the end of the axis it stays
            limits = autograd.clip(place, low, high)
            inside = autograd.where(place, inside, limits == place)
        place = inside
    if mode == "nearest":
        return [tap(place, None, length, padding, low, high)]
    base = autograd.floor(place).detach()
    t = place - base
    weights = (
        {0: 1.0 - t, 1: t}
        if mode == "linear"
        else {
            -1: cubic_far(t + 1.0),
            0: cubic_near(t),
            1: cubic_near(1.0 - t),
            2: cubic_far(2.0 - t),
        }
    )
    return [
        tap(base + float(offset), weight, length, padding, low, high)
        for offset, weight in weights.items()
    ]
