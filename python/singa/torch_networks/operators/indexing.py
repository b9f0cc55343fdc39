"""Operators that take elements by their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ... import autograd, tensor
from ...dtypes import is_float
from ...networks.errors import Refused
from ...networks.tensors import same_type
from ...tensor import Tensor
from .registry import Call, computes


@computes("embedding")
def embedding(
    call: Call,
    table: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of a table; that of `padding_idx` gets no gradient."""
    if scale_grad_by_freq:
        raise Refused("scale_grad_by_freq")
    y = autograd.gather(table, 0, indices)
    if padding_idx < 0:
        return y
    is_padding = autograd.reshape(autograd.equal(indices, padding_idx), (*indices.shape, 1))
    return autograd.where(y.detach(), y, autograd.cast(is_padding, tensor.bool_))


@computes("index.Tensor")
def index(call: Call, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Elements by arrays of indices for axes that follow each other."""
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if any(is_float(each.dtype) or each.dtype == tensor.bool_ for _, each in given):
        raise Refused("a mask as an index, whose number of elements depends on values")
    first, last = given[0][0], given[-1][0]
    if len(given) != last - first + 1:
        raise Refused("index arrays with an axis between them")
    lengths = x.shape[first : last + 1]
    flat: Tensor | None = None
    for (_, each), n in zip(given, lengths, strict=True):
        # A negative index counts from the end.
        each = autograd.where(each + n, each, each < 0) if len(given) > 1 else each
        flat = each if flat is None else flat * n + each
    assert flat is not None
    if len(given) > 1:
        merged = (*x.shape[:first], math.prod(lengths), *x.shape[last + 1 :])
        x = autograd.reshape(x, merged)
    return autograd.gather(x, first, flat)


@computes("index_select")
def index_select(call: Call, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Elements along an axis."""
    return autograd.gather(x, axis % len(x.shape), indices)


@computes("gather")
def gather(call: Call, x: Tensor, axis: int, indices: Tensor, sparse_grad: bool = False) -> Tensor:
    """An element along an axis for each place."""
    return autograd.gather_elements(x, indices, axis)


@computes("scatter.src")
def scatter(call: Call, x: Tensor, axis: int, indices: Tensor, source: Tensor) -> Tensor:
    """x with elements along an axis replaced."""
    return autograd.scatter_elements(x, indices, same_type(source, x), axis)


@computes("scatter_add")
def scatter_add(call: Call, x: Tensor, axis: int, indices: Tensor, source: Tensor) -> Tensor:
    """x with elements added along an axis."""
    return autograd.scatter_elements(x, indices, same_type(source, x), axis, "add")
