"""Readers of sorting, and of running sums and products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import autograd
from ...networks.element_types import FLOATS, INTEGERS, NUMERIC, numpy_type
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...networks.tensors import same_type
from ...tensor import Tensor
from ..values import argument, axis_within, numbers
from .registry import reads


@reads("TopK", 1, 10, 11, 24, types=NUMERIC, host=(1,))
def top_k(node: Node) -> Compute:
    """The largest or smallest elements along an axis, in order, and their positions."""
    axis = node.attributes.get("axis", -1)
    largest = bool(node.attributes.get("largest", 1))

    def compute(run: Any, x: Tensor, k: Any = None) -> Any:
        given = argument(node, "k", () if node.version == 1 else (k,), 0)
        if given is None or len(given) != 1:
            raise ValueError(f"[TopK] k must be one number, got {given}")
        return autograd.topk(x, given[0], axis_within(node, axis, len(x.shape)), largest)

    return compute


@reads("CumSum", 11, 14, types=NUMERIC, host=(1,))
def cum_sum(node: Node) -> Compute:
    """Sums of the elements up to each position along an axis."""
    exclusive = bool(node.attributes.get("exclusive", 0))
    reverse = bool(node.attributes.get("reverse", 0))

    def compute(run: Any, x: Tensor, axis: Any) -> Tensor:
        (given,) = numbers(axis)
        at = axis_within(node, given, len(x.shape))
        return same_type(autograd.cumsum(x, at, exclusive, reverse), x)

    return compute


@reads("CumProd", 26, types=FLOATS | INTEGERS, host=(1,))
def cum_prod(node: Node) -> Compute:
    """Products of the elements up to each position along an axis.

    Each round multiplies by what lies twice as far away. Hillis & Steele 1986.
    """
    exclusive = bool(node.attributes.get("exclusive", 0))
    reverse = bool(node.attributes.get("reverse", 0))

    def compute(run: Any, x: Tensor, axis: Any) -> Tensor:
        (given,) = numbers(axis)
        at = axis_within(node, given, len(x.shape))
        length = x.shape[at]

        def moved(y: Tensor, by: int) -> Tensor:
            """y moved along the axis, with ones behind it."""
            shape = (*x.shape[:at], by, *x.shape[at + 1 :])
            kind = numpy_type(x.dtype.name)
            ones = run.tensor(run.made((node.name, shape), lambda: np.ones(shape, kind)))
            first = by if reverse else 0
            kept = autograd.slice(y, [first], [first + length - by], [at])
            return autograd.cat([kept, ones] if reverse else [ones, kept], at)

        if not length:
            return x
        y = moved(x, 1) if exclusive else x
        distance = 1
        while distance < length:
            y = autograd.mul(y, moved(y, distance))
            distance *= 2
        return y

    return compute
