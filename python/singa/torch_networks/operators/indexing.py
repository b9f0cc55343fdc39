"""Operators that take elements by their indices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import autograd, tensor
from ...dtypes import is_float
from ...networks.element_types import numpy_type
from ...networks.errors import Refused
from ...networks.tensors import same_type
from ...tensor import Tensor
from .registry import Call, along_axis, computes, of_floats


def _not_equal(indices: Tensor, number: int) -> Tensor:
    return autograd.cast(autograd.not_equal(indices, number), tensor.bool_)


_BY_FREQUENCY = "scale_grad_by_freq: turn it off, and divide the table's gradient by counts"


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
        raise Refused(_BY_FREQUENCY)
    y = autograd.gather(table, 0, indices)
    if padding_idx < 0:
        return y
    is_row = autograd.reshape(_not_equal(indices, padding_idx), (*indices.shape, 1))
    return autograd.where(y, y.detach(), is_row)


@computes("_embedding_bag", "_embedding_bag_forward_only")
def embedding_bag(
    call: Call,
    table: Tensor,
    indices: Tensor,
    offsets: Tensor,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Tensor:
    """Sums or means of rows of a table. A bag begins at each offset; the last offset may be the
    end. Rows of `padding_idx` do not count."""
    if scale_grad_by_freq:
        raise Refused(_BY_FREQUENCY)
    if mode == 2:
        raise Refused("bags with mode='max': take nn.Embedding, and the maximum of its rows")
    (count,), (bags,) = indices.shape, offsets.shape

    def full(value: int, shape: tuple[int, ...], kind: str) -> Tensor:
        key = (call.node.name, value, shape, kind)
        return call.run.tensor(call.run.made(key, lambda: np.full(shape, value, numpy_type(kind))))

    def summed(rows: Tensor) -> Tensor:
        zeros = full(0, (bags, *rows.shape[1:]), rows.dtype.name)
        return autograd.scatter_nd(zeros, bag, rows, "add")

    ones, kind = full(1, (bags,), "int64"), table.dtype.name
    offsets = autograd.cast(offsets, tensor.int64)
    starts = autograd.scatter_elements(full(0, (count + 1,), "int64"), offsets, ones, 0, "add")
    bag = autograd.cumsum(autograd.slice(starts, [0], [count], [0]), 0) - 1
    bag = autograd.reshape(bag, (count, 1))
    rows, counted = autograd.gather(table, 0, indices), full(1, (count, 1), kind)
    if weights is not None:
        rows = rows * autograd.reshape(weights, (count, 1))
    if padding_idx >= 0:
        is_kept = autograd.reshape(_not_equal(indices, padding_idx), (count, 1))
        zero = call.run.number(0.0, table)
        rows = autograd.where(rows, zero, is_kept)
        counted = autograd.where(counted, zero, is_kept)
    y = summed(rows)
    if mode == 1:
        y = y / autograd.clip(summed(counted), 1.0, None)
    return autograd.slice(y, [0], [bags - 1], [0]) if include_last_offset else y


@computes("index.Tensor")
def index(call: Call, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Elements by arrays of indices."""
    x, indices, _ = _together(x, indices)
    first, last, flat = _flat_index(x, indices)
    if last > first:
        x = autograd.reshape(x, _merged(x, first, last))
    return autograd.gather(x, first, flat)


@computes("index_put")
def index_put(
    call: Call,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    """x with elements replaced, or added to, by arrays of indices; or, by a mask, by one value."""
    if indices[0] is not None and indices[0].dtype == tensor.bool_:
        return _put_by_mask(call, x, indices, values, accumulate)
    x, indices, moved = _together(x, indices)
    y = _put(x, indices, values, accumulate)
    return autograd.transpose(y, [moved.index(i) for i in range(len(moved))]) if moved else y


def _put_by_mask(
    call: Call, x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool
) -> Tensor:
    mask = indices[0]
    assert mask is not None
    if len(indices) > 1 or values.size() != 1:
        raise Refused(
            "a mask as an index of values, whose number depends on values: take torch.where"
        )
    mask = autograd.reshape(mask, (*mask.shape, *(1,) * (len(x.shape) - len(mask.shape))))
    values = autograd.reshape(same_type(values, x), ())
    return autograd.where(x + values if accumulate else values, x, mask)


def _together(
    x: Tensor, indices: Sequence[Tensor | None]
) -> tuple[Tensor, Sequence[Tensor | None], list[int]]:
    """If axes without an array lie between those with one, these come first, as in PyTorch's
    result, and the order of axes is the third result."""
    axes = [i for i, each in enumerate(indices) if each is not None]
    if axes[-1] - axes[0] == len(axes) - 1:
        return x, indices, []
    order = axes + [i for i in range(len(x.shape)) if i not in axes]
    return autograd.transpose(x, order), [indices[i] for i in axes], order


def _put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool) -> Tensor:
    first, last, flat = _flat_index(x, indices)
    before, after = tuple(x.shape[:first]), tuple(x.shape[last + 1 :])
    part = (*before, *flat.shape, *after)
    values = same_type(values, x)
    values = values if tuple(values.shape) == part else autograd.expand(values, part)
    # The indexed axes come first, as one.
    count, rest = math.prod(flat.shape), [i + 1 for i in range(len(before))]
    order = [
        len(before),
        *range(len(before)),
        *range(len(before) + 1, len(before) + 1 + len(after)),
    ]
    whole = autograd.transpose(autograd.reshape(x, _merged(x, first, last)), order)
    values = autograd.transpose(autograd.reshape(values, (*before, count, *after)), order)
    places = autograd.reshape(flat, (count, 1))
    whole = autograd.scatter_nd(whole, places, values, "add" if accumulate else "none")
    back = [*rest, 0, *range(len(before) + 1, len(before) + 1 + len(after))]
    return autograd.reshape(autograd.transpose(whole, back), tuple(x.shape))


def _flat_index(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[int, int, Tensor]:
    """The first and the last axis that arrays index, and their index into these axes as one."""
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    if any(is_float(each.dtype) or each.dtype == tensor.bool_ for _, each in given):
        raise Refused(
            "a mask as an index, whose number of elements depends on values: take torch.where"
        )
    first, last = given[0][0], given[-1][0]
    flat: Tensor | None = None
    for (_, each), n in zip(given, x.shape[first : last + 1], strict=True):
        # A negative index counts from the end.
        each = autograd.where(each + n, each, each < 0) if len(given) > 1 else each
        flat = each if flat is None else flat * n + each
    assert flat is not None
    return first, last, flat


def _merged(x: Tensor, first: int, last: int) -> tuple[int, ...]:
    """The shape of x with the axes from `first` to `last` as one."""
    return (*x.shape[:first], math.prod(x.shape[first : last + 1]), *x.shape[last + 1 :])


@computes("index_select")
@along_axis
def index_select(call: Call, x: Tensor, axis: int, indices: Tensor) -> Tensor:
    """Elements along an axis."""
    return autograd.gather(x, axis % len(x.shape), indices)


@computes("gather")
@along_axis
def gather(call: Call, x: Tensor, axis: int, indices: Tensor, sparse_grad: bool = False) -> Tensor:
    """An element along an axis for each place; indices without elements may have any rank."""
    shape = tuple(indices.shape)
    if math.prod(shape):
        return autograd.gather_elements(x, indices, axis)
    none = autograd.reshape(indices, (0,) * len(x.shape))
    return autograd.reshape(autograd.gather_elements(x, none, axis), shape)


@computes("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    call: Call,
    sequences: Tensor,
    values: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values go in sequences, so that these stay sorted."""
    if sorter is not None:
        sequences = autograd.gather_elements(sequences, sorter, len(sequences.shape) - 1)
    return autograd.searchsorted(sequences, values, right or side == "right")


@computes("bucketize.Tensor")
def bucketize(
    call: Call, x: Tensor, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The buckets between boundaries in which elements lie."""
    return searchsorted(call, boundaries, x, right=right)


def _scattered(
    x: Tensor, axis: int, indices: Tensor, source: Tensor, reduction: str = "none"
) -> Tensor:
    """As scatter_elements. `source` may be larger than the indices: its first elements count."""
    lengths = tuple(indices.shape)
    if tuple(source.shape) != lengths:
        source = autograd.slice(source, [0] * len(lengths), lengths, range(len(lengths)))
    return autograd.scatter_elements(x, indices, same_type(source, x), axis, reduction)


@computes("scatter.src")
@along_axis
def scatter(call: Call, x: Tensor, axis: int, indices: Tensor, source: Tensor) -> Tensor:
    """x with elements along an axis replaced."""
    return _scattered(x, axis, indices, source)


@computes("scatter.value_reduce")
@along_axis
def scatter_value_joined(
    call: Call, x: Tensor, axis: int, indices: Tensor, value: float, *, reduce: str
) -> Tensor:
    """x with a number added or multiplied to elements along an axis."""
    source = autograd.expand(call.run.number(value, x), tuple(indices.shape))
    return _scattered(x, axis, indices, source, "mul" if reduce == "multiply" else reduce)


@computes("scatter_add")
@along_axis
def scatter_add(call: Call, x: Tensor, axis: int, indices: Tensor, source: Tensor) -> Tensor:
    """x with elements added along an axis."""
    return _scattered(x, axis, indices, source, "add")


#: By what PyTorch calls them: the reduction, and what changes nothing in it.
_REDUCTIONS = {
    "sum": ("add", 0.0),
    "mean": ("add", 0.0),
    "prod": ("mul", 1.0),
    "amax": ("max", -math.inf),
    "amin": ("min", math.inf),
}


@computes("scatter_reduce.two")
@of_floats
@along_axis
def scatter_reduce(
    call: Call,
    x: Tensor,
    axis: int,
    indices: Tensor,
    source: Tensor,
    reduce: str,
    include_self: bool = True,
) -> Tensor:
    """x with elements joined with others along an axis."""
    reduction, neutral = _REDUCTIONS[reduce]
    lengths = tuple(indices.shape)
    if not include_self:
        instead = autograd.expand(call.run.number(neutral, x), lengths)
        x = _scattered(x, axis, indices, instead)
    y = _scattered(x, axis, indices, source, reduction)
    if reduce != "mean":
        return y
    one = call.run.number(1.0, x)
    count = _scattered(
        autograd.expand(one, tuple(x.shape)), axis, indices, autograd.expand(one, lengths), "add"
    )
    return y / (count if include_self else autograd.clip(count - 1.0, 1.0, None))


@computes("scatter.value")
@along_axis
def scatter_value(call: Call, x: Tensor, axis: int, indices: Tensor, value: float) -> Tensor:
    """x with elements along an axis replaced by a number."""
    source = autograd.expand(call.run.number(value, x), tuple(indices.shape))
    return autograd.scatter_elements(x, indices, source, axis)
