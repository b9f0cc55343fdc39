"""The reader of determinants."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import autograd
from ...networks.front_end import Compute
from ...networks.graph import Node
from ...tensor import Tensor
from .movement import reshaped
from .registry import reads


@reads("Det", 11, 22)
def determinant(node: Node) -> Compute:
    """The determinant of the matrices along the last two axes.

    Elimination by the largest element of all that remain. A matrix without inverse so has its zeros
    in the last steps, and the gradient is right for it, too.
    """

    def compute(run: Any, x: Tensor) -> Tensor:
        shape = tuple(x.shape)
        if len(shape) < 2 or shape[-1] != shape[-2]:
            raise ValueError(f"[Det] node {node.name!r}: x has shape {shape}")
        a = reshaped(x, (math.prod(shape[:-2]), *shape[-2:]))
        one, zero = run.number(1, x), run.number(0, x)
        result = autograd.expand(one, (a.shape[0],))
        if not a.size():
            return reshaped(result, shape[:-2])
        for _ in range(shape[-1]):
            rows = autograd.reduce_max(autograd.abs(a), [2], 0)
            a, sign = _with_first(a, rows, zero)
            columns = autograd.transpose(a, (0, 2, 1))
            a, other = _with_first(columns, autograd.abs(_part(columns, 2)), zero)
            pivot = _part(_part(a, 1), 1)
            result = result * pivot * sign * other
            size = a.shape[1]
            if size == 1:
                break
            row = autograd.slice(a, [0, 1], [1, size], [1, 2])
            column = autograd.slice(a, [1, 0], [size, 1], [1, 2])
            rest = autograd.slice(a, [1, 1], [size, size], [1, 2])
            divisor = reshaped(autograd.where(pivot, one, pivot != zero), (-1, 1, 1))
            a = rest - column / divisor * row
        return reshaped(result, shape[:-2])

    return compute


def _part(x: Tensor, axis: int) -> Tensor:
    """The first slice along an axis, without that axis."""
    first = autograd.slice(x, [0], [1], [axis])
    return reshaped(first, (*x.shape[:axis], *x.shape[axis + 1 :]))


def _with_first(a: Tensor, sizes: Tensor, zero: Tensor) -> tuple[Tensor, Tensor]:
    """Each matrix with the row of the largest of `sizes` exchanged for its first one, and the sign
    that this gives to the determinant."""
    count, rows, columns = a.shape
    values = np.array([0, 1], "float32" if a.dtype.name == "bfloat16" else a.dtype.name)
    best = autograd.argmax(sizes, 1)
    hit = autograd.onehot(1, best, rows, values)
    hit = autograd.cast(hit, a.dtype)
    sign = _part(hit, 1) * 2.0 - 1.0
    chosen = autograd.gather_nd(a, reshaped(best, (count, 1)), 1)
    first = autograd.slice(a, [0], [1], [1])
    others = autograd.slice(a, [1], [rows], [1])
    is_chosen = reshaped(autograd.slice(hit, [1], [rows], [1]), (count, rows - 1, 1)) != zero
    others = autograd.where(first, others, is_chosen)
    parts = [reshaped(chosen, (count, 1, columns)), others]
    return autograd.cat(parts, 1) if rows > 1 else parts[0], sign
