"""Gradients in buckets, which go to the other ranks while backward makes the next ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..tape.tensor import wrap
from ..tensor import DType, Tensor

#: (parameter, gradient)
Pair = tuple[Tensor, Tensor]
#: The first bucket is this many times smaller, so that communication starts early.
_FIRST = 16


def full_buckets(pairs: Iterable[Pair], limit: int) -> Iterator[list[Pair]]:
    """Fills buckets of `limit` elements with gradients of one type, in the order in which backward
    makes them. Yields those that are full, before backward goes on, and at last the others."""
    filling: dict[DType, list[Pair]] = {}
    sizes: dict[DType, int] = {}
    full = max(limit // _FIRST, 1)
    for param, grad in pairs:
        dtype = grad.dtype
        bucket = filling.setdefault(dtype, [])
        bucket.append((param, dense(grad)))
        sizes[dtype] = sizes.get(dtype, 0) + grad.size()
        if sizes[dtype] >= full:
            del filling[dtype], sizes[dtype]
            yield bucket
            full = limit
    yield from filling.values()


def with_gradients(pairs: Sequence[Pair], raw: Sequence[Any]) -> list[Pair]:
    """The parameters with these raw gradients, in the types of their own."""
    return [
        (param, wrap(other.AsType(int(grad.dtype)), False))
        for (param, grad), other in zip(pairs, raw, strict=True)
    ]


def parts_of(params: Sequence[Tensor], limit: int) -> list[list[Tensor]]:
    """Divides parameters, in their order, into parts of at most `limit` elements each. A larger one
    is a part of its own."""
    parts: list[list[Tensor]] = [[]]
    size = 0
    for param in params:
        if parts[-1] and size + param.size() > limit:
            parts.append([])
            size = 0
        parts[-1].append(param)
        size += param.size()
    return parts


def dense(grad: Tensor) -> Tensor:
    """The gradient, or a copy without gaps between its elements."""
    raw = grad.data
    if raw.is_blocked() or raw.is_contiguous():
        return grad
    return wrap(raw.Contiguous(), False)
