"""Readers of Resize and Upsample.

What singa's interpolation computes otherwise than ONNX is a product with a matrix for each axis:
TensorFlow's coordinates, antialiasing, and corners with a scale that is not the ratio of lengths.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd
from ...networks.element_types import FLOATS, INTEGERS
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...ops.resampling import COORDINATES, NEAREST, Interpolate
from ...tensor import Tensor
from ..values import axis_within, bounded, numbers
from .registry import reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_TENSORFLOW = ("tf_half_pixel_for_nn", "tf_crop_and_resize")
#: An axis: its number, length before and after, scale, and the part that is resized.
_Axis = tuple[int, int, int, float, float, float]


class _Method:
    """The attributes of a Resize or Upsample."""

    def __init__(self, node: Node, coordinates: str, nearest: str) -> None:
        of = node.attributes.get
        mode = of("mode", "nearest")
        self.node = node
        self.mode: str = {"bilinear": "linear"}.get(mode, mode)
        self.coordinates: str = of("coordinate_transformation_mode", coordinates)
        self.nearest: str = of("nearest_mode", nearest)
        self.cubic: float = of("cubic_coeff_a", -0.75)
        self.exclude_outside = bool(of("exclude_outside", 0))
        self.antialias = bool(of("antialias", 0)) and self.mode != "nearest"
        if self.mode not in ("nearest", "linear", "cubic"):
            raise Refused(f"mode {mode!r}")
        if self.coordinates not in (*COORDINATES, *_TENSORFLOW):
            raise Refused(f"coordinate_transformation_mode {self.coordinates!r}")
        if self.nearest not in NEAREST:
            raise Refused(f"nearest_mode {self.nearest!r}")
        if self.mode != "nearest" and node.input_types and node.input_types[0].type in INTEGERS:
            raise Refused(f"mode {mode!r} of integers")

    def resized(self, run: Any, x: Tensor, axes: Sequence[_Axis]) -> Tensor:
        """x interpolated along axes."""
        for axis, length, result, *_ in axes:
            if min(length, result) < 1:
                raise ValueError(f"[{self.node.op}] axis {axis} of {tuple(x.shape)} to {result}")
        lengths = {axis: result for axis, _, result, *_ in axes}
        bounded(self.node, [lengths.get(i, n) for i, n in enumerate(x.shape)])
        exact = all(scale == result / length for _, length, result, scale, *_ in axes)
        by_scale = self.coordinates == "align_corners" and not exact
        if self.coordinates in _TENSORFLOW or self.antialias or by_scale:
            return self._multiplied(run, x, axes)
        places, _, results, scales, *_ = zip(*axes, strict=True)
        if tuple(results) == tuple(x.shape[i] for i in places) and set(scales) == {1.0}:
            return x
        return Interpolate(
            places,
            results,
            scales,
            self.mode,
            self.coordinates,
            self.nearest,
            self.cubic,
            self.exclude_outside,
            self.antialias,
        )(x)[0]

    def _coordinates(self, a: _Axis) -> Array:
        """For each position of the result, where it lies in x."""
        _, n, result, scale, start, end = a
        out, kind = np.arange(result, dtype=np.float64), self.coordinates
        if kind == "asymmetric":
            return out / scale
        if kind == "align_corners":
            return out * (n - 1) / (scale * n - 1) if scale * n != 1 else np.zeros(result)
        if kind == "tf_half_pixel_for_nn":
            return (out + 0.5) / scale
        if kind == "tf_crop_and_resize":
            if result == 1:
                return np.array([0.5 * (start + end) * (n - 1)])
            return start * (n - 1) + out * (end - start) * (n - 1) / (result - 1)
        if kind == "pytorch_half_pixel" and result == 1:
            return np.array([0.0])
        shift = n / 2 * (1 - result / (scale * n)) if kind == "half_pixel_symmetric" else 0.0
        return shift + (out + 0.5) / scale - 0.5

    def _matrix(self, a: _Axis) -> Array:
        """The matrix (result, length) of an axis."""
        _, length, result, scale, *_ = a
        places, matrix = self._coordinates(a), np.zeros((result, length))
        if self.mode == "nearest":
            half = {"round_prefer_floor": -0.5, "round_prefer_ceil": 0.5}.get(self.nearest, 0.0)
            up = self.nearest in ("ceil", "round_prefer_floor")
            near = np.ceil(places + half) if up else np.floor(places + half)
            matrix[np.arange(result), np.clip(near, 0, length - 1).astype(np.int64)] = 1.0
            return matrix
        scale = min(scale, 1.0) if self.antialias else 1.0
        reach = 1 if self.mode == "linear" else 2
        first = math.floor(-reach / scale) + 1
        offsets = np.arange(first, reach - first + (0 if self.mode == "cubic" else 1))
        for row, x in enumerate(places):
            base = math.ceil(x) - 1  # an integer x lies at the end of its interval
            t = np.abs(offsets - (x - base)) * scale
            if self.mode == "linear":
                weights = np.clip(1 - t, 0, 1)
            else:  # Keys 1981
                c = self.cubic
                near = ((c + 2) * t - (c + 3)) * t * t + 1
                far = ((c * t - 5 * c) * t + 8 * c) * t - 4 * c
                weights = np.where(t <= 1, near, np.where(t < 2, far, 0.0))
            where = base + offsets
            if self.exclude_outside:
                weights = np.where((where >= 0) & (where < length), weights, 0.0)
            if self.exclude_outside or self.antialias:
                weights = weights / weights.sum()
            np.add.at(matrix[row], np.clip(where, 0, length - 1), weights)
        return matrix

    def _multiplied(self, run: Any, x: Tensor, axes: Sequence[_Axis]) -> Tensor:
        """x times the matrices; another value outside of it with tf_crop_and_resize."""
        kind = np.float64 if x.dtype.name == "float64" else np.float32
        y, rank = autograd.cast(x, kind.__name__), len(x.shape)
        kept = np.ones((1,) * rank, np.bool_)
        for a in axes:
            axis, length = a[:2]
            key = (self.node.name, a, kind)
            factor = run.made(key, lambda a=a: np.ascontiguousarray(self._matrix(a).T, kind))
            order = [i for i in range(rank) if i != axis] + [axis]
            moved = autograd.matmul(autograd.transpose(y, order), run.tensor(factor))
            y = autograd.transpose(moved, [order.index(i) for i in range(rank)])
            places = self._coordinates(a)
            inside = (places >= 0) & (places <= length - 1)
            kept = kept & inside.reshape([-1 if i == axis else 1 for i in range(rank)])
        y = same_type(y, x)
        if self.coordinates != "tf_crop_and_resize" or kept.all():
            return y
        mask = run.made((self.node.name, "mask", tuple(axes)), lambda: kept)
        value = run.number(self.node.attributes.get("extrapolation_value", 0.0), y)
        return autograd.where(y, value, run.tensor(mask))


@reads("Resize", 11, 13, 18, 19, types=FLOATS | INTEGERS, host=(1, 2, 3))
def resize(node: Node) -> Compute:
    """Interpolation to other lengths of axes."""
    method = _Method(node, "half_pixel", "round_prefer_floor")
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")

    def compute(
        run: Any, x: Tensor, roi: Any = None, scales: Any = None, sizes: Any = None
    ) -> Tensor:
        rank = len(x.shape)
        given = node.attributes.get("axes")
        axes = list(range(rank)) if given is None else [axis_within(node, i, rank) for i in given]
        lengths = [x.shape[i] for i in axes]
        if sizes is not None and sizes.size:
            results = numbers(sizes)
            factors = [r / n for r, n in zip(results, lengths, strict=True)]
            if policy != "stretch":
                factor = min(factors) if policy == "not_larger" else max(factors)
                factors = [factor] * len(axes)
                results = [math.floor(factor * n + 0.5) for n in lengths]
        elif scales is not None and scales.size:
            factors = _factors(scales)
            results = [math.floor(n * s) for n, s in zip(lengths, factors, strict=True)]
        else:
            raise ValueError("[Resize] needs scales or sizes")
        starts, ends = [0.0] * len(axes), [1.0] * len(axes)
        if method.coordinates == "tf_crop_and_resize":
            if roi is None or roi.size != 2 * len(axes):
                raise ValueError("[Resize] tf_crop_and_resize needs roi")
            starts, ends = roi.reshape(2, -1).astype(np.float64).tolist()
        parts = zip(axes, lengths, results, factors, starts, ends, strict=True)
        return method.resized(run, x, list(parts))

    return compute


def _factors(scales: Array) -> list[float]:
    """Scales as the decimal numbers that were meant: 0.7 in float32 is less, which would round
    positions half-way between two elements to the other one."""
    return [float(str(s)) for s in scales.reshape(-1)]


@reads("Upsample", 7, types=FLOATS | INTEGERS)
@reads("Upsample", 9, 10, types=FLOATS | INTEGERS, host=(1,))
@reads("Resize", 10, types=FLOATS | INTEGERS, host=(1,))
def upsample(node: Node) -> Compute:
    """Interpolation by factors."""
    method = _Method(node, "asymmetric", "floor")

    def compute(run: Any, x: Tensor, scales: Any = None) -> Tensor:
        factors = node.attributes["scales"] if scales is None else _factors(scales)
        pairs = zip(x.shape, factors, strict=True)
        axes = [(i, n, math.floor(n * s), s, 0.0, 1.0) for i, (n, s) in enumerate(pairs)]
        return method.resized(run, x, axes)

    return compute
