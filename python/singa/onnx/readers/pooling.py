"""Readers of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import autograd, singa_wrap, tensor
from ...dtypes import is_float
from ...networks.element_types import FLOATS
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from ..values import bounded
from .movement import reshaped
from .quantization import is_on_cpu
from .registry import reads
from .window import Window

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

_POOLING: Any = (autograd.pooling_1d, autograd.pooling_2d, autograd.pooling_3d)


def _pool(node: Node, is_max: bool, count_padding: bool = False, p: float | None = None) -> Any:
    """A function of an image: maximum, mean or p-norm of each window."""
    window = Window(node)
    ceil_mode = bool(node.attributes.get("ceil_mode", 0))
    handles: dict[Any, Any] = {}

    def compute(x: Tensor) -> Tensor:
        axes, kernel, strides, dilations, padding = window.over(x)
        if p is not None and any(padding):
            zeros = (0, 0, *padding[:axes], 0, 0, *padding[axes:])
            x, padding = autograd.pad(x, "constant", zeros), (0,) * len(padding)
        key = (padding, x.shape[1])
        handle = handles.get(key)
        if handle is None:
            handle = handles[key] = singa_wrap.PoolingHandle(
                x.data, kernel, strides, padding, is_max, ceil_mode, count_padding, dilations
            )
        return _POOLING[axes - 1](handle, x) if p is None else autograd.lp_pool(handle, x, p)

    return compute


@reads("MaxPool", 1, 8, 10, 11, 12, 22, types=FLOATS | {"int8", "uint8"})
def max_pool(node: Node) -> Compute:
    """Maximum of each window, and where it is in the flat image."""
    pool = _pool(node, True)
    has_places = len(node.used) > 1 and node.used[1]

    def compute(run: Any, x: Tensor) -> Any:
        if is_float(x.dtype) or is_on_cpu(x):
            y = pool(x)
        else:
            y = autograd.cast(pool(autograd.cast(x, tensor.float32)), x.dtype)  # exact
        return (y, _places(node, run, x, y)) if has_places else y

    return compute


def _places(node: Node, run: Any, x: Tensor, y: Tensor) -> Tensor:
    """Indices of the elements y in the flat x: of equal ones, the first."""
    shape, sizes = tuple(x.shape), tuple(y.shape[2:])
    rows, windows = math.prod(shape[:2]), math.prod(sizes)
    if not rows * windows:
        return run.tensor(run.made((node.name, shape), lambda: np.zeros(tuple(y.shape), np.int64)))
    inside = run.made((node.name, "elements", shape[2:]), lambda: _elements(node, shape[2:], sizes))
    count = inside.shape[1]
    elements = autograd.gather(reshaped(x, (rows, math.prod(shape[2:]))), 1, run.tensor(inside))
    best = autograd.cast(autograd.argmax(elements, 2), tensor.int64)  # of (rows, windows, count)

    def beginnings() -> Array:
        return np.arange(windows, dtype=np.int64) * count

    def table() -> Array:
        if not node.attributes.get("storage_order", 0):
            return inside.reshape(-1)
        axes = np.unravel_index(inside.reshape(-1), shape[2:])
        return np.asarray(np.ravel_multi_index(axes, shape[2:], order="F"), np.int64)

    def images() -> Array:
        return np.arange(rows, dtype=np.int64)[:, None] * math.prod(shape[2:])

    chosen = best + run.tensor(run.made((node.name, "begin", shape[2:]), beginnings))
    places = autograd.gather(
        run.tensor(run.made((node.name, "table", shape[2:]), table)), 0, chosen
    )
    places = places + run.tensor(run.made((node.name, "image", shape), images))
    return reshaped(places, tuple(y.shape))


def _elements(node: Node, lengths: Sequence[int], sizes: Sequence[int]) -> Array:
    """For each window the flat indices of its elements. One in the padding has the index of the
    window's first element."""
    window = Window(node)
    kernel = window.of(window.kernel, len(lengths), 1)
    strides, dilations, padding = window.geometry(lengths, kernel)
    bounded(node, (math.prod(sizes), math.prod(kernel)))
    flat, exists = np.zeros((1, 1), np.int64), np.ones((1, 1), bool)
    for n, m, k, s, d, before in zip(
        lengths, sizes, kernel, strides, dilations, padding, strict=False
    ):
        at = np.arange(m)[:, None] * s + np.arange(k) * d - before
        flat = (flat[:, None, :, None] * n + at[None, :, None, :]).reshape(len(flat) * m, -1)
        there = (at >= 0) & (at < n)
        exists = (exists[:, None, :, None] & there[None, :, None, :]).reshape(flat.shape)
    first = np.take_along_axis(flat, exists.argmax(1)[:, None], 1)
    return np.where(exists, flat, np.where(exists.any(1, keepdims=True), first, 0))


@reads("AveragePool", 1, 7, 10, 11, 19, 22)
def average_pool(node: Node) -> Compute:
    """Mean of each window."""
    pool = _pool(node, False, bool(node.attributes.get("count_include_pad", 0)))
    return lambda run, x: pool(x)


@reads("LpPool", 2, 11, 18, 22)
def lp_pool(node: Node) -> Compute:
    """Norm of each window."""
    if node.attributes.get("ceil_mode", 0):
        raise Refused("ceil_mode")
    p = node.attributes.get("p", 2)
    if p < 1:
        raise Refused(f"p is {p}")
    pool = _pool(node, False, p=p)
    return lambda run, x: pool(x)


@reads("GlobalAveragePool", 1, 22)
def global_average_pool(node: Node) -> Compute:
    """Mean over all axes but the first two."""

    def compute(run: Any, x: Tensor) -> Tensor:
        if 3 <= len(x.shape) <= 5:
            return autograd.globalaveragepool(x)
        return autograd.reduce_mean(x, list(range(2, len(x.shape))), 1)

    return compute


@reads("GlobalMaxPool", 1, 22)
def global_max_pool(node: Node) -> Compute:
    """Maximum over all axes but the first two."""
    return lambda run, x: autograd.reduce_max(x, list(range(2, len(x.shape))), 1)


@reads("GlobalLpPool", 1, 2, 22)
def global_lp_pool(node: Node) -> Compute:
    """Norm over all axes but the first two."""
    p = node.attributes.get("p", 2)

    def compute(run: Any, x: Tensor) -> Tensor:
        axes = list(range(2, len(x.shape)))
        if p == 2:
            return autograd.reduce_l2(x, axes, 1)
        return autograd.pow(autograd.reduce_sum(autograd.pow(autograd.abs(x), p), axes, 1), 1.0 / p)

    return compute
