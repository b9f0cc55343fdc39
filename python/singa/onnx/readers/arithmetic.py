"""Readers of elementwise operators of several tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import autograd, tensor
from ...dtypes import is_float
from ...networks.element_types import BOOL, FLOATS, NUMERIC
from ...networks.errors import Refused
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...ops import arithmetic as ops
from ...tensor import Tensor
from ..functions import ARITHMETIC, COMPARISONS, LOGIC, OF_LISTS, Combination
from .registry import reads


def _number(value: Any, other: Any) -> Any:
    """An array of one element as a Python number, where that changes neither shape nor bits.

    Operators of a tensor and a number keep the layout of the tensor and need no other memory.
    """
    if not (isinstance(value, np.ndarray) and value.size == 1 and isinstance(other, Tensor)):
        return value
    if value.ndim > len(other.shape) or value.dtype.kind == "b":
        return value
    number = value.reshape(-1)[0].astype(np.float64).item()
    if is_float(other.dtype):
        return number
    return int(number) if abs(number) < 1 << 53 else value


def _legacy(node: Node, a: Any, b: Any) -> Any:
    """b in the shape that the broadcast of opset 1 to 6 means, which aligns axes at `axis`."""
    if node.version >= 7 or not node.attributes.get("broadcast", 0):
        return b
    axis = node.attributes.get("axis")
    rank, own = len(a.shape), len(b.shape)
    if axis is None or not own:
        return b
    axis = axis + rank if axis < 0 else axis
    shape = (*b.shape, *(1,) * (rank - axis - own))
    return b.reshape(shape) if isinstance(b, np.ndarray) else autograd.reshape(b, shape)


def _binary(row: Combination) -> None:
    function = getattr(autograd, row.op.lower())  # which also takes numbers

    @reads(row.op, *row.versions, types=row.types, either=True)
    def make(node: Node) -> Compute:
        def compute(run: Any, a: Any, b: Any) -> Tensor:
            b = _legacy(node, a, b)
            x, y = _number(a, b), _number(b, a)
            if isinstance(x, np.ndarray | Tensor) and isinstance(y, np.ndarray | Tensor):
                return row.operator()(run.as_tensor(x), run.as_tensor(y))[0]
            return function(x, y)

        return compute


for _row in ARITHMETIC:
    _binary(_row)


@reads("Div", 1, 6, 7, 13, 14, types=NUMERIC, either=True)
def div(node: Node) -> Compute:
    """a / b. Integers are truncated towards zero."""

    def compute(run: Any, a: Any, b: Any) -> Tensor:
        b = _legacy(node, a, b)
        x, y = _number(a, b), _number(b, a)
        if isinstance(x, float) and is_float(b.dtype):
            return autograd.div(x, y)
        return ops.Div()(run.as_tensor(a), run.as_tensor(b))[0]

    return compute


@reads("Mod", 10, 13, 28, types=NUMERIC)
def mod(node: Node) -> Compute:
    """Remainder with the sign of b, or of a with `fmod`."""
    if not node.attributes.get("fmod", 0):
        if node.version < 28 and node.input_types and node.input_types[0].type in FLOATS:
            raise Refused("fmod=0 for floats, which this version does not define")
        return lambda run, a, b: ops.Mod()(a, b)[0]

    return lambda run, a, b: autograd.fmod(a, b)


@reads("Pow", 1, 7, 12, 13, 15, types=NUMERIC, either=True)
def power(node: Node) -> Compute:
    """a ** b in the type of a."""

    def compute(run: Any, a: Any, b: Any) -> Tensor:
        b = _legacy(node, a, b)
        exponent = _number(b, a)
        if isinstance(exponent, int | float) and is_float(a.dtype):
            return autograd.square(a) if exponent == 2 else autograd.pow(a, exponent)
        base, exponent = run.as_tensor(a), run.as_tensor(b)
        return same_type(ops.Pow()(base, exponent)[0], base)

    return compute


def _comparison(row: Combination) -> None:
    @reads(row.op, *row.versions, types=row.types, gradient=False)
    def make(node: Node) -> Compute:
        def compute(run: Any, a: Tensor, b: Tensor) -> Tensor:
            return autograd.cast(row.operator()(a, _legacy(node, a, b))[0], tensor.bool_)

        return compute


for _row in (*COMPARISONS, *LOGIC):
    _comparison(_row)


def _list(row: Combination) -> None:
    function = getattr(autograd, row.op.lower())

    @reads(row.op, *row.versions, types=row.types)
    def make(node: Node) -> Compute:
        return lambda run, *xs: xs[0] if len(xs) == 1 else function(*xs)


for _row in OF_LISTS:
    _list(_row)


@reads("Where", 9, 16, types=BOOL)
def where(node: Node) -> Compute:
    """x where the condition holds, else y."""
    return lambda run, condition, x, y: autograd.where(x, y, condition)
