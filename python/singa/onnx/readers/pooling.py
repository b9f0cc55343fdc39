"""Readers of pooling."""

from __future__ import annotations

import math
from typing import Any

from ... import autograd, singa_wrap, tensor
from ...dtypes import is_float
from ...tensor import Tensor
from ..element_types import FLOATS
from ..errors import Refused
from ..graph import Node
from .registry import Compute, reads
from .window import Window

_POOLING: Any = (autograd.pooling_1d, autograd.pooling_2d, autograd.pooling_3d)


def _pool(node: Node, is_max: bool, count_padding: bool) -> Any:
    """A function of an image: maximum or mean of each window."""
    window = Window(node)
    ceil_mode = bool(node.attributes.get("ceil_mode", 0))
    handles: dict[Any, Any] = {}

    def compute(x: Tensor) -> Tensor:
        axes = window.check(x)
        kernel = window.of(window.kernel, axes, 1)
        strides = window.of(window.strides, axes, 1)
        dilations = window.of(window.dilations, axes, 1)
        padding = window.padding(x.shape[2:], kernel, strides, dilations)
        key = (padding, x.shape[1])
        handle = handles.get(key)
        if handle is None:
            handle = handles[key] = singa_wrap.PoolingHandle(
                x.data, kernel, strides, padding, is_max, ceil_mode, count_padding, dilations
            )
        return _POOLING[axes - 1](handle, x)

    return compute


@reads("MaxPool", 1, 8, 10, 11, 12, 22, types=FLOATS | {"int8", "uint8"})
def max_pool(node: Node) -> Compute:
    """Maximum of each window."""
    if len(node.used) > 1 and node.used[1]:
        raise Refused("the indices of max pooling")
    pool = _pool(node, True, False)

    def compute(run: Any, x: Tensor) -> Tensor:
        if is_float(x.dtype):
            return pool(x)
        return autograd.cast(pool(autograd.cast(x, tensor.float32)), x.dtype)  # exact

    return compute


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
    count = math.prod(node.attributes["kernel_shape"])
    pool = _pool(node, False, True)

    def compute(run: Any, x: Tensor) -> Tensor:
        powers = autograd.square(x) if p == 2 else autograd.pow(autograd.abs(x), p)
        sums = pool(powers) * float(count)
        return autograd.sqrt(sums) if p == 2 else autograd.pow(sums, 1.0 / p)

    return compute


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
