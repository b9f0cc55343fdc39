"""Readers of reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import autograd
from ...dtypes import is_float
from ...tensor import Tensor
from ..element_types import BOOL, FLOATS, NUMERIC
from ..graph import Node
from ..tensors import same_type
from ..values import argument, axis_within
from .registry import Compute, reads


def _log_sum_exp(x: Tensor, axes: Any, keepdims: bool) -> Tensor:
    most = autograd.reduce_max(x, axes, 1).detach()  # a constant: it cancels
    # Infinities stay in the sum: inf - inf would be NaN.
    zero = most * 0.0
    most = autograd.where(autograd.sign(most) * 0.0, most, zero != zero)
    sums = autograd.log(autograd.reduce_sum(autograd.exp(x - most), axes, 1)) + most
    return sums if keepdims else autograd.squeeze(sums, axes or ())


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
    op: str, *versions: int, function: Callable[..., Tensor], by_input: int, types: Any
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
            if not over and nothing:
                return _of_one(op, x)
            if not rank:
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


_reduction("ReduceSum", 1, 11, 13, function=autograd.reduce_sum, by_input=13, types=NUMERIC)
_reduction("ReduceMean", 1, 11, 13, 18, function=autograd.reduce_mean, by_input=18, types=FLOATS)
_reduction("ReduceProd", 1, 11, 13, 18, function=autograd.reduce_prod, by_input=18, types=NUMERIC)
_reduction("ReduceL1", 1, 11, 13, 18, function=autograd.reduce_l1, by_input=18, types=NUMERIC)
_reduction("ReduceL2", 1, 11, 13, 18, function=autograd.reduce_l2, by_input=18, types=FLOATS)
_reduction(
    "ReduceSumSquare",
    *(1, 11, 13, 18),
    function=autograd.reduce_sum_square,
    by_input=18,
    types=NUMERIC,
)
_reduction(
    "ReduceMax",
    *(1, 11, 12, 13, 18, 20),
    function=_with_empty(float("-inf"), autograd.reduce_max),
    by_input=18,
    types=NUMERIC | BOOL,
)
_reduction(
    "ReduceMin",
    *(1, 11, 12, 13, 18, 20),
    function=_with_empty(float("inf"), autograd.reduce_min),
    by_input=18,
    types=NUMERIC | BOOL,
)
_reduction(
    "ReduceLogSum",
    *(1, 11, 13, 18, 28),
    function=lambda x, axes, keep: autograd.log(autograd.reduce_sum(x, axes, keep)),
    by_input=18,
    types=FLOATS,
)
_reduction(
    "ReduceLogSumExp",
    *(1, 11, 13, 18, 28),
    function=_with_empty(float("-inf"), _log_sum_exp),
    by_input=18,
    types=FLOATS,
)


def _arg(op: str, function: Callable[..., Tensor]) -> None:
    @reads(op, 1, 11, 12, 13, types=NUMERIC, gradient=False)
    def make(node: Node) -> Compute:
        axis = node.attributes.get("axis", 0)
        keepdims = bool(node.attributes.get("keepdims", 1))
        last = bool(node.attributes.get("select_last_index", 0))

        def compute(run: Any, x: Tensor) -> Tensor:
            at = axis_within(node, axis, len(x.shape))
            if not last:
                return function(x, at, keepdims)
            length = x.shape[at]
            turned = autograd.slice(x, [length - 1], [-length - 1], [at], [-1])
            position = function(turned, at, keepdims)
            return autograd.sub(length - 1, position)

        return compute


_arg("ArgMax", autograd.argmax)
_arg("ArgMin", autograd.argmin)
