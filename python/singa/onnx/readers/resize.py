"""Readers of Resize and Upsample.

Interpolation is linear in x along each axis, so it is a product with a matrix that depends on
lengths only. Nearest neighbours are gathered.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd
from ...tensor import Tensor
from ..element_types import FLOATS, INTEGERS
from ..errors import Refused
from ..graph import Node
from ..tensors import same_type
from ..values import axis_within, numbers
from .registry import Compute, reads

if TYPE_CHECKING:
    from numpy.typing import NDArray

_COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)


@dataclass(frozen=True)
class _Method:
    """How to interpolate."""

    mode: str
    coordinates: str
    nearest: str
    cubic: float
    exclude_outside: bool
    antialias: bool
    extrapolation: float


@dataclass(frozen=True)
class _Axis:
    """One axis: its length before and after, and the part of x that is resized."""

    axis: int
    length: int
    result: int
    scale: float
    start: float = 0.0
    end: float = 1.0


def _coordinates(method: _Method, a: _Axis) -> NDArray[Any]:
    """For each position of the result, where it lies in x."""
    out = np.arange(a.result, dtype=np.float64)
    kind, n, scale = method.coordinates, a.length, a.scale
    if kind == "asymmetric":
        return out / scale
    if kind == "align_corners":
        width = scale * n
        return np.zeros(a.result) if width == 1 else out * (n - 1) / (width - 1)
    if kind == "tf_half_pixel_for_nn":
        return (out + 0.5) / scale
    if kind == "tf_crop_and_resize":
        if a.result == 1:
            return np.array([0.5 * (a.start + a.end) * (n - 1)])
        return a.start * (n - 1) + out * (a.end - a.start) * (n - 1) / (a.result - 1)
    if kind == "pytorch_half_pixel" and a.result == 1:
        return np.array([0.0])
    shift = 0.0
    if kind == "half_pixel_symmetric":
        shift = n / 2 * (1 - a.result / (scale * n))
    return shift + (out + 0.5) / scale - 0.5


def _indices(method: _Method, a: _Axis) -> NDArray[Any]:
    """Positions in x of the nearest neighbours."""
    x = _coordinates(method, a)
    if method.nearest == "floor":
        near = np.floor(x)
    elif method.nearest == "ceil":
        near = np.ceil(x)
    elif method.nearest == "round_prefer_ceil":
        near = np.floor(x + 0.5)
    else:
        near = np.ceil(x - 0.5)
    return np.clip(near, 0, a.length - 1).astype(np.int64)


def _cubic(x: NDArray[Any], a: float) -> NDArray[Any]:
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0.0))


def _matrix(method: _Method, a: _Axis) -> NDArray[Any]:
    """The matrix (result, length) of an axis."""
    scale = min(a.scale, 1.0) if method.antialias else 1.0
    reach = 1 if method.mode == "linear" else 2
    first = math.floor(-reach / scale) + 1
    offsets = np.arange(first, reach - first + (0 if method.mode == "cubic" else 1))
    matrix = np.zeros((a.result, a.length))
    for row, x in enumerate(_coordinates(method, a)):
        base = math.ceil(x) - 1  # an integer x lies at the end of its interval
        args = (offsets - (x - base)) * scale
        if method.mode == "linear":
            weights = np.clip(1 - np.abs(args), 0, 1)
        else:
            weights = _cubic(args, method.cubic)
        if method.antialias:
            weights = weights / weights.sum()
        where = base + offsets
        if method.exclude_outside:
            weights = np.where((where >= 0) & (where < a.length), weights, 0.0)
            weights = weights / weights.sum()
        np.add.at(matrix[row], np.clip(where, 0, a.length - 1), weights)
    return matrix


def _inside(method: _Method, a: _Axis) -> NDArray[Any]:
    x = _coordinates(method, a)
    return (x >= 0) & (x <= a.length - 1)


def resized(run: Any, node: Node, x: Tensor, method: _Method, axes: Sequence[_Axis]) -> Tensor:
    """x interpolated along axes."""
    y = x
    for a in axes:
        if min(a.length, a.result) < 1:
            raise ValueError(f"[{node.op}] axis {a.axis} of {tuple(x.shape)} to {a.result}")
        key = (node.name, a, int(x.dtype))
        if method.mode == "nearest":
            y = _gathered(run, key, y, a, method)
        else:
            y = _multiplied(run, key, y, a, method)
    if method.coordinates != "tf_crop_and_resize":
        return y

    def mask() -> NDArray[Any]:
        inside = np.ones((1,) * len(y.shape), np.bool_)
        for a in axes:
            shape = [a.result if i == a.axis else 1 for i in range(len(y.shape))]
            inside = inside & _inside(method, a).reshape(shape)
        return inside

    kept = run.made((node.name, "mask", tuple(axes)), mask)
    if kept.all():
        return y
    return autograd.where(y, run.number(method.extrapolation, y), run.tensor(kept))


def _multiplied(run: Any, key: Any, x: Tensor, a: _Axis, method: _Method) -> Tensor:
    """x times the matrix of weights of an axis."""
    kind = np.float64 if x.dtype.name == "float64" else np.float32
    matrix = run.made(key, lambda: _matrix(method, a).astype(kind))
    if a.length == a.result and np.array_equal(matrix, np.eye(a.length)):
        return x
    rank = len(x.shape)
    if a.axis == rank - 2:
        return autograd.matmul(same_type(run.tensor(matrix), x), x)
    turned = run.made((*key, "turned"), lambda: np.ascontiguousarray(matrix.T))
    factor = same_type(run.tensor(turned), x)
    if a.axis == rank - 1:
        return autograd.matmul(x, factor)
    order = [i for i in range(rank) if i != a.axis] + [a.axis]
    moved = autograd.matmul(autograd.transpose(x, order), factor)
    return autograd.transpose(moved, [order.index(i) for i in range(rank)])


def _gathered(run: Any, key: Any, x: Tensor, a: _Axis, method: _Method) -> Tensor:
    indices = run.made(key, lambda: _indices(method, a))
    if a.result == a.length and np.array_equal(indices, np.arange(a.length)):
        return x
    factor = a.result // a.length
    if factor * a.length == a.result and np.array_equal(
        indices, np.arange(a.result) // max(factor, 1)
    ):
        factors = [factor if i == a.axis else 1 for i in range(len(x.shape))]
        return autograd.upsample(x, "nearest", factors)
    return autograd.gather(x, a.axis, run.tensor(indices))


def _method(node: Node, coordinates: str, nearest: str) -> _Method:
    attributes = node.attributes
    mode = attributes.get("mode", "nearest")
    mode = {"bilinear": "linear"}.get(mode, mode)
    method = _Method(
        mode,
        attributes.get("coordinate_transformation_mode", coordinates),
        attributes.get("nearest_mode", nearest),
        attributes.get("cubic_coeff_a", -0.75),
        bool(attributes.get("exclude_outside", 0)),
        bool(attributes.get("antialias", 0)),
        attributes.get("extrapolation_value", 0.0),
    )
    if mode not in ("nearest", "linear", "cubic"):
        raise Refused(f"mode {mode!r}")
    if method.coordinates not in _COORDINATES:
        raise Refused(f"coordinate_transformation_mode {method.coordinates!r}")
    if method.nearest not in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        raise Refused(f"nearest_mode {method.nearest!r}")
    return method


@reads("Resize", 11, 13, 18, 19, types=FLOATS | INTEGERS, host=(1, 2, 3))
def resize(node: Node) -> Compute:
    """Interpolation to other lengths of axes."""
    method = _method(node, "half_pixel", "round_prefer_floor")
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    _check_type(node, method)

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
        parts = [(0.0, 1.0)] * len(axes)
        if method.coordinates == "tf_crop_and_resize":
            if roi is None or roi.size != 2 * len(axes):
                raise ValueError("[Resize] tf_crop_and_resize needs roi")
            ends = [float(r) for r in roi.reshape(-1)]
            parts = list(zip(ends[: len(axes)], ends[len(axes) :], strict=True))
        specs = [
            _Axis(i, n, r, s, *part)
            for i, n, r, s, part in zip(axes, lengths, results, factors, parts, strict=True)
        ]
        return resized(run, node, x, method, specs)

    return compute


def _factors(scales: NDArray[Any]) -> list[float]:
    """Scales as the decimal numbers that were meant: 0.7 in float32 is less, which would round
    positions half-way between two elements to the other one."""
    return [float(str(s)) for s in scales.reshape(-1)]


def _check_type(node: Node, method: _Method) -> None:
    if method.mode != "nearest" and node.input_types and node.input_types[0].type in INTEGERS:
        raise Refused(f"mode {method.mode!r} of integers")


def _by_scales(node: Node, run: Any, x: Tensor, scales: Sequence[float]) -> Tensor:
    method = _method(node, "asymmetric", "floor")
    specs = [
        _Axis(i, n, math.floor(n * s), s)
        for i, (n, s) in enumerate(zip(x.shape, scales, strict=True))
    ]
    return resized(run, node, x, method, specs)


@reads("Upsample", 7, types=FLOATS | INTEGERS)
def upsample_by_attribute(node: Node) -> Compute:
    """Interpolation by factors."""
    _check_type(node, _method(node, "asymmetric", "floor"))
    return lambda run, x: _by_scales(node, run, x, node.attributes["scales"])


@reads("Upsample", 9, 10, types=FLOATS | INTEGERS, host=(1,))
@reads("Resize", 10, types=FLOATS | INTEGERS, host=(1,))
def upsample(node: Node) -> Compute:
    """Interpolation by factors."""
    _check_type(node, _method(node, "asymmetric", "floor"))

    def compute(run: Any, x: Tensor, scales: Any) -> Tensor:
        return _by_scales(node, run, x, _factors(scales))

    return compute
