"""Readers of reductions."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ... import autograd
from ...dtypes import is_float
from ...networks.element_types import BOOL, FLOATS, NUMERIC
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tensor import Tensor
from ..values import argument, axis_within
from .registry import reads


def _with_empty(value: float, function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A reduction that gives `value` where nothing is reduced."""

    def reduce(x: Tensor, axes: Any, keepdims: bool) -> Tensor:
        over = axes or list(range(len(x.shape)))
        if all(x.shape[axis] for axis in over):
            return function(x, axes, keepdims)
        shape = [1 if i in over else n for i, n in enumerate(x.shape)]
        if not keepdims:
            shape = [n for i, n in enumerate(x.shape) if i not in over]
        number = value
        if not is_float(x.dtype):
            kind = np.dtype(x.dtype.name)
            limits = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
            number = limits[value > 0]
        return Tensor(shape, x.device, x.dtype, requires_grad=False).set_value(number)

    return reduce


def _reduction(
    op: str,
    *versions: int,
    function: Callable[..., Tensor],
    by_input: int = 18,
    types: Collection[str] = FLOATS,
) -> None:
    """A reader; `by_input` is the first version whose axes are an input."""

    @reads(op, *versions, types=types, host=(1,))
    def make(node: Node) -> Compute:
        keepdims = bool(node.attributes.get("keepdims", 1))
        nothing = bool(node.attributes.get("noop_with_empty_axes", 0))

        def compute(run: Any, x: Tensor, axes: Any = None) -> Tensor:
            rank = len(x.shape)
            given = argument(node, "axes", (axes,) if node.version >= by_input else (), 0)
            over = [axis_within(node, axis, rank) for axis in given or []]
            if not rank or (nothing and not over):
                return _of_one(op, x)
            return same_type(function(x, over or None, keepdims), x)

        return compute


def _of_one(op: str, x: Tensor) -> Tensor:
    """A reduction of single elements."""
    if op in ("ReduceL1", "ReduceL2"):
        return autograd.abs(x)
    if op == "ReduceSumSquare":
        return autograd.square(x)
    return autograd.log(x) if op == "ReduceLogSum" else x


_FIRST = (1, 11, 13, 18)
_EXTREMA = (1, 11, 12, 13, 18, 20)
_MAX = _with_empty(float("-inf"), autograd.reduce_max)
_MIN = _with_empty(float("inf"), autograd.reduce_min)
_LOG_SUM_EXP = _with_empty(
    float("-inf"), lambda x, axes, keep: autograd.ReduceLogSumExp(axes, keep)(x)[0]
)

_reduction("ReduceSum", 1, 11, 13, function=autograd.reduce_sum, by_input=13, types=NUMERIC)
_reduction("ReduceMean", *_FIRST, function=autograd.reduce_mean)
_reduction("ReduceProd", *_FIRST, function=autograd.reduce_prod, types=NUMERIC)
_reduction("ReduceL1", *_FIRST, function=autograd.reduce_l1, types=NUMERIC)
_reduction("ReduceL2", *_FIRST, function=autograd.reduce_l2)
_reduction("ReduceSumSquare", *_FIRST, function=autograd.reduce_sum_square, types=NUMERIC)
_reduction("ReduceMax", *_EXTREMA, function=_MAX, types=NUMERIC | BOOL)
_reduction("ReduceMin", *_EXTREMA, function=_MIN, types=NUMERIC | BOOL)
_reduction("ReduceLogSum", *_FIRST, 28, function=autograd.reduce_log_sum)
_reduction("ReduceLogSumExp", *_FIRST, 28, function=_LOG_SUM_EXP)


def _arg(op: str, function: Callable[..., Tensor]) -> None:
    @reads(op, 1, 11, 12, 13, types=NUMERIC, gradient=False)
    def make(node: Node) -> Compute:
        axis = node.attributes.get("axis", 0)
        keepdims = bool(node.attributes.get("keepdims", 1))
        last = bool(node.attributes.get("select_last_index", 0))
        return lambda run, x: function(x, axis_within(node, axis, len(x.shape)), keepdims, last)


_arg("ArgMax", autograd.argmax)
_arg("ArgMin", autograd.argmin)
